"""The engine of Slurm, whose commands are played."""

from __future__ import annotations

import contextlib
import os

import pytest

from ddp_perf.launch.blame import NodeEnd, combine
from ddp_perf.launch.engine import server_words
from ddp_perf.launch.engines import slurm
from ddp_perf.launch.engines.slurm import SlurmEngine, loss_of, step_environment, troubles
from ddp_perf.launch.interpreter import package_directory
from tests.builders import make_request

SALLOC = """#!/bin/sh
printf "%s\\n" "$@" > $0.args
echo 7 n[1-2]; exec cat
"""


@pytest.fixture
def answers(monkeypatch):
    """The answer of each command of Slurm; without one, the command fails."""
    answers = {("scontrol", "n[1-2]"): "n1\nn2"}

    def ask(*command):
        return answers.get(command[0], "") or answers.get((command[0], command[-1]), "")

    monkeypatch.setattr(slurm, "ask", ask)
    return answers


@pytest.fixture
def salloc(answers, monkeypatch, tmp_path):
    """Put an salloc on PATH that grants two nodes; return its arguments."""
    program = tmp_path / "salloc"
    program.write_text(SALLOC)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    return lambda: (tmp_path / "salloc.args").read_text().splitlines()


@contextlib.contextmanager
def opened(**changes):
    fields = {"nodes": 2, "gpus_per_node": 8, "on_wait": pytest.fail, **changes}
    with contextlib.closing(SlurmEngine(**fields)) as engine:
        yield engine


def test_a_site_adds_arguments_to_the_commands(salloc, tmp_path):
    container = "--container-image=nvcr.io/nvidia/pytorch:26.10-py3"
    with opened(
        interpreter="python3",
        srun_args=(container, "--container-mounts=/data"),
        salloc_args=("--account=ml",),
    ) as engine:
        assert engine.nodes == ("n1", "n2")
        srun = engine.transport("n2", "gpu", tmp_path).words

    server = server_words("python3", package_directory())
    assert srun[:4] == ["srun", "--jobid=7", "--job-name=ddp-perf", "--nodelist=n2"]
    assert srun[-6:] == [container, "--container-mounts=/data", *server]
    own = ["--nodes=2", "--exclusive", "--gpus-per-node=8", "--job-name=ddp-perf"]
    assert salloc()[:5] == [*own, "--account=ml"]


def test_ranks_meet_at_the_address_that_slurm_has(answers):
    with opened() as engine:
        assert engine.endpoint("n1").startswith("n1:")
        answers["scontrol"] = "NodeName=n1 NodeAddr=10.0.0.1 NodeHostName=n1"
        host, _, port = engine.endpoint("n1").partition(":")

    assert host == "10.0.0.1"
    assert 20_000 <= int(port) < 30_000


def test_a_node_that_is_down_is_the_cause_of_the_end_of_its_job(salloc, answers):
    answers["sinfo"] = "n1|idle|none\nn2|down*|Not responding"
    answers["squeue"] = "NODE_FAIL|NodeDown"
    with opened() as engine:
        losses = {node: engine.loss(node) for node in engine.nodes}
    ends = [
        NodeEnd(node=node, lost=loss or "ended", is_seen=loss is not None)
        for node, loss in losses.items()
    ]

    failure = combine(make_request("mlp"), ends)

    assert (failure.node, failure.detail) == ("n2", "the node is down: Not responding")


def test_a_job_that_ends_is_the_cause_on_each_node(salloc, answers):
    answers["squeue"] = "TIMEOUT|TimeLimit"
    with opened() as engine:
        assert engine.loss("n2") == "job 7 reached its time limit"


@pytest.mark.parametrize(
    ("state", "loss"),
    [
        ("RUNNING|None", None),
        ("", None),
        ("TIMEOUT|TimeLimit", "job 6 reached its time limit"),
        ("COMPLETING|TimeLimit", "job 6 reached its time limit"),
        ("CANCELLED|None", "job 6 was cancelled"),
        ("COMPLETING|None", "job 6 was cancelled"),
        ("NODE_FAIL|NodeDown", "job 6 ended (NODE_FAIL, NodeDown)"),
        ("PREEMPTED|None", "job 6 ended (PREEMPTED, None)"),
    ],
)
def test_the_end_of_a_job_has_its_cause(answers, state, loss):
    answers["squeue"] = state
    assert loss_of("6") == loss


@pytest.mark.parametrize(
    ("account", "who"),
    [
        ("CANCELLED by 0", " by root"),
        ("CANCELLED by 4294967294", " by user 4294967294"),
        ("CANCELLED", ""),
        ("", ""),
    ],
)
def test_the_canceller_is_named_if_the_cluster_keeps_accounts(answers, account, who):
    answers["squeue"], answers["sacct"] = "CANCELLED|None", account
    assert loss_of("6") == f"job 6 was cancelled{who}"


@pytest.mark.parametrize(
    ("state", "trouble"),
    [
        ("idle|none", None),
        ("allocated|none", None),
        ("down*|Not responding", "the node is down: Not responding"),
        ("allocated*|none", "the node does not answer Slurm"),
        ("down|memory errors\nn2|down|memory errors", "the node is down: memory errors"),
    ],
)
def test_the_state_of_a_node_has_its_reason(answers, state, trouble):
    answers["sinfo"] = f"n2|{state}"
    assert troubles(["n2"]).get("n2") == trouble


def test_a_node_whose_state_is_unknown_has_no_trouble(answers):
    assert troubles(["n2"]) == {}


def test_a_step_does_not_inherit_what_its_job_asked_for(monkeypatch):
    monkeypatch.setenv("SLURM_CONF", "/etc/slurm.conf")
    monkeypatch.setenv("SLURM_CPUS_PER_TASK", "4")
    monkeypatch.setenv("SRUN_CPUS_PER_TASK", "4")
    environment = step_environment()

    assert environment["SLURM_CONF"] == "/etc/slurm.conf"
    assert not {"SLURM_CPUS_PER_TASK", "SRUN_CPUS_PER_TASK"} & environment.keys()
