"""A launch by Slurm whose step is played."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from types import SimpleNamespace

import pytest

from ddp_perf.launch.nodes import slurm
from ddp_perf.launch.nodes.slurm import SlurmEngine

NOTING = """#!/bin/sh
printf "%s\\n" "$@" "PYTHONPATH=$PYTHONPATH" > $0.args
{then}
"""


class PlayedStep:
    """A job step in which every node prints one line and ends well."""

    def __init__(self, job, nodes, command, directory, further):
        (directory / "0.out").write_text("done\n")

    def wait(self, deadline_s):
        pass

    def end(self):
        pass

    def output(self, number):
        return "done\n"

    def errors(self, number):
        return ""


def test_a_directory_that_cannot_be_removed_costs_no_launch(monkeypatch, tmp_path):
    allocation = SimpleNamespace(job="7", check=lambda: None, first=lambda nodes: ("n1",))
    monkeypatch.setattr(slurm, "allocate", lambda *arguments, on_wait: allocation)
    monkeypatch.setattr(slurm, "Step", PlayedStep)
    monkeypatch.setattr(slurm, "failures_of", lambda step, job: {})

    def refuse(path, **where):  # an NFS client keeps the name of a file that somebody has open
        raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), path)

    monkeypatch.setattr(os, "rmdir", refuse)
    engine = SlurmEngine(nodes=1, gpus_per_node=0, directory=tmp_path / "s", on_wait=pytest.fail)

    (end,) = engine.run(["train"], nodes=1, only=None, deadline_s=1)

    assert (end.node, end.output, end.failure) == ("n1", "done\n", None)


@pytest.fixture
def slurm_commands(monkeypatch, tmp_path):
    """Put an srun and an salloc on PATH that note their arguments and end; return where."""
    for name, then in (("srun", "exit 0"), ("salloc", "echo 7 n1; exec cat")):
        program = tmp_path / name
        program.write_text(NOTING.format(then=then))
        program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    return lambda name: (tmp_path / f"{name}.args").read_text().splitlines()


def test_a_site_adds_arguments_to_the_commands(slurm_commands, tmp_path):
    container = "--container-image=nvcr.io/nvidia/pytorch:26.10-py3"
    engine = SlurmEngine(
        nodes=1,
        gpus_per_node=8,
        directory=tmp_path / "shared",
        srun_args=(container, "--container-mounts=/data"),
        salloc_args=("--account=ml",),
        on_wait=pytest.fail,
    )

    with contextlib.closing(engine):
        engine.run([sys.executable, "train"], nodes=1, only=None, deadline_s=10)

    srun, salloc = slurm_commands("srun"), slurm_commands("salloc")
    place = srun.index(container)
    assert srun[0] == "--jobid=7"
    assert srun[place + 1 : place + 4] == ["--container-mounts=/data", sys.executable, "train"]
    assert salloc[:4] == ["--nodes=1", "--exclusive", "--gpus-per-node=8", "--job-name=ddp-perf"]
    assert "--account=ml" in salloc[: salloc.index("sh")]


def test_another_python_gets_this_package_and_none_of_its_neighbours(slurm_commands, tmp_path):
    engine = SlurmEngine(
        nodes=1, gpus_per_node=0, directory=tmp_path / "shared", on_wait=pytest.fail
    )

    with contextlib.closing(engine):
        engine.run(["python3", "train"], nodes=1, only=None, deadline_s=10)

    *_, path = slurm_commands("srun")
    alone = path.removeprefix("PYTHONPATH=").split(os.pathsep)[0]
    assert alone.startswith(str(tmp_path / "shared"))
