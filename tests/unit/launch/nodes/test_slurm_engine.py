"""A launch by Slurm whose step is played."""

from __future__ import annotations

import errno
import os
from types import SimpleNamespace

import pytest

from ddp_perf.launch.nodes import slurm
from ddp_perf.launch.nodes.slurm import SlurmEngine


class PlayedStep:
    """A job step in which every node prints one line and ends well."""

    def __init__(self, job, nodes, command, directory):
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
