"""The lines of srun, as a real one printed them, and the states that Slurm reports."""

from __future__ import annotations

import pytest

from ddp_perf.launch.nodes import slurm
from ddp_perf.launch.nodes.slurm import failures_in, loss_of, step_environment, trouble_of

NODES = ("node1", "node2")
LINES = {
    "a node process fails": (
        """\
srun: error: node2: task 1: Exited with exit code 3
srun: launch/slurm: _step_signal: Terminating StepId=1.0
srun: error: node1: task 0: Terminated
srun: Force Terminated StepId=1.0""",
        {"node2": "exit code 3", "node1": "ended because node2 failed"},
    ),
    "a node fails": (
        """\
srun: error: Node failure on node2
srun: Job step aborted: Waiting up to 4 seconds for job step to finish.
srun: error: node1: task 0: Terminated
srun: launch/slurm: _step_signal: Terminating StepId=3.0""",
        {"node2": "the node failed", "node1": "ended because node2 failed"},
    ),
    "a step is cancelled": (
        """\
srun: Job step aborted: Waiting up to 4 seconds for job step to finish.
srun: error: node2: task 1: Killed
srun: launch/slurm: _step_signal: Terminating StepId=1.5
srun: error: node1: task 0: Killed""",
        dict.fromkeys(NODES, "its step was cancelled"),
    ),
    "the processes of Slurm on a node are killed": (
        """\
srun: error: _server_write write failed: Bad file descriptor
srun: error: Aborting, io error and missing step on node 0
srun: Job step aborted: Waiting up to 4 seconds for job step to finish.""",
        {"node1": "its slurmstepd has gone"},
    ),
    "a directory is not shared": (
        "srun: error: task 1 launch failed: Slurmd could not connect IO",
        {"node2": "its output is lost: is DIR on a file system that all nodes share?"},
    ),
    "a warning": ("srun: cluster configuration lacks support for cpu binding", {}),
}


@pytest.fixture(autouse=True)
def answers(monkeypatch):
    """The answer of each command of Slurm; without one, the command fails."""
    answers = {}

    def ask(*command):
        return command[-1] if command[:2] == ("scontrol", "show") else answers.get(command[0], "")

    monkeypatch.setattr(slurm, "ask", ask)
    return answers


@pytest.mark.parametrize("what", LINES)
def test_srun_names_the_nodes(what):
    lines, failures = LINES[what]
    assert failures_in(lines.splitlines(), NODES, "DIR") == failures


def test_a_node_that_is_down_is_the_cause_also_if_srun_aborts_before_it_names_it():
    lines = """\
srun: Job step aborted: Waiting up to 4 seconds for job step to finish.
srun: error: node1: task 0: Killed
srun: error: Node failure on node2""".splitlines()

    found = failures_in(lines, NODES, "DIR", down="node2")

    assert found["node1"] == "ended because node2 failed"


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
        ("", None),
        ("down*|Not responding", "the node is down: Not responding"),
        ("allocated*|none", "the node does not answer Slurm"),
        ("down|memory errors\ndown|memory errors", "the node is down: memory errors"),
    ],
)
def test_the_state_of_a_node_has_its_reason(answers, state, trouble):
    answers["sinfo"] = state
    assert trouble_of("node2") == trouble


def test_a_step_does_not_inherit_what_its_job_asked_for(monkeypatch):
    monkeypatch.setenv("SLURM_CONF", "/etc/slurm.conf")
    monkeypatch.setenv("SLURM_CPUS_PER_TASK", "4")
    monkeypatch.setenv("SRUN_CPUS_PER_TASK", "4")
    environment = step_environment()

    assert environment["SLURM_CONF"] == "/etc/slurm.conf"
    assert not {"SLURM_CPUS_PER_TASK", "SRUN_CPUS_PER_TASK"} & environment.keys()
