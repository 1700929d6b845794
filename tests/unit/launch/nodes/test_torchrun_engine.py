"""Node processes of the engine torchrun: shells that stand in for them."""

from __future__ import annotations

import os
import signal
import time

import pytest

from ddp_perf.errors import LaunchError
from ddp_perf.launch.nodes import node, torchrun
from ddp_perf.launch.nodes.engine import GOODBYE_S
from ddp_perf.launch.nodes.torchrun import TorchrunEngine
from ddp_perf.launch.supervisor.rank import REAPED_S

SHELL = "env WHERE={node} sh -c"


def run(engine, script, *, nodes=1, only=None, deadline_s=60.0):
    """Run a script, as a node process that ignores the option it gets, on each node."""
    return engine.run(
        ["sh", "-c", script],
        nodes=nodes,
        only=only,
        deadline_s=deadline_s,
    )


def on_two_hosts(**fields):
    return TorchrunEngine(hosts=("a", "b"), node_shell=SHELL, **fields)


def test_each_host_gets_its_number_and_the_rendezvous_in_this_directory():
    engine = on_two_hosts(endpoint="a:29400")
    script = 'echo "$WHERE $DDP_PERF_NODE $DDP_PERF_RDZV_ENDPOINT $PWD $0"'

    ends = run(engine, script, nodes=2)

    here = os.getcwd()
    assert [(end.node, end.output, end.failure) for end in ends] == [
        ("a", f"a 0 a:29400 {here} --end-with-stdin\n", None),
        ("b", f"b 1 a:29400 {here} --end-with-stdin\n", None),
    ]


def test_a_shell_on_a_host_gets_the_path_of_the_libraries(monkeypatch):
    monkeypatch.setenv("LD_LIBRARY_PATH", "/opt/aws-ofi-nccl/lib")

    engine = TorchrunEngine(hosts=("a", "b"), node_shell="env -u LD_LIBRARY_PATH sh -c")

    ends = run(engine, "echo $LD_LIBRARY_PATH", nodes=2)

    assert [end.output for end in ends] == ["/opt/aws-ofi-nccl/lib\n"] * 2


def test_one_host_can_be_chosen():
    (end,) = run(on_two_hosts(), "echo $WHERE", only="b")

    assert (end.node, end.output) == ("b", "b\n")


def test_without_hosts_the_node_is_this_machine():
    (end,) = run(TorchrunEngine(), "echo out; echo err >&2; exit 3")

    assert (end.output, end.failure) == ("out\nerr\n", "exit code 3")


def test_the_other_nodes_are_ended_a_while_after_one_failed(monkeypatch):
    """They are told by the end of their standard input."""
    monkeypatch.setattr(torchrun, "GRACE_S", 0.2)
    script = 'test "$WHERE" = a && exit 1; cat; echo ended'

    first, second = run(on_two_hosts(), script, nodes=2)

    assert first.failure == "exit code 1"
    assert (second.output, second.failure) == ("ended\n", "another node failed")
    assert (first.was_ended, second.was_ended) == (False, True)


def test_a_deadline_may_be_longer_than_one_wait_of_the_kernel():
    (end,) = run(TorchrunEngine(), "sleep 0.2; echo done", deadline_s=1e9)

    assert end.output == "done\n"


def test_a_node_that_does_not_end_is_killed(monkeypatch):
    monkeypatch.setattr(torchrun, "GOODBYE_S", 0.2)
    begin = time.monotonic()

    (end,) = run(TorchrunEngine(), "sleep 600", deadline_s=0.1)

    assert end.failure == "no end in 0 s; it did not end in 0 s, and was killed"
    assert end.was_ended
    assert time.monotonic() - begin < 60


@pytest.mark.slow
def test_all_nodes_have_the_same_time_to_end(monkeypatch):
    monkeypatch.setattr(torchrun, "GOODBYE_S", 3.0)
    hosts = tuple("abcdefghij")
    engine = TorchrunEngine(hosts=hosts, node_shell=SHELL)
    begin = time.monotonic()

    ends = run(engine, "sleep 600", nodes=len(hosts), deadline_s=0.1)

    assert all("was killed" in end.failure for end in ends)
    assert time.monotonic() - begin < 3.0 * len(hosts) / 2


def test_a_node_may_take_as_long_as_its_gpus_to_end():
    assert REAPED_S["gpu"] + 2 * node._TERMINATE_S < GOODBYE_S


# An interrupt within Popen leaves no object to wait for: the process ends with its standard input.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_interrupt_ends_every_node(tmp_path):
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    interrupt = f"while [ ! -e begun-a ]; do sleep 0.01; done; kill -INT {os.getpid()}"
    script = (
        f"cd {tmp_path}; touch begun-$WHERE; if [ $WHERE = b ]; then {interrupt}; fi"
        "; cat; touch ended-$WHERE"
    )

    try:
        with pytest.raises(KeyboardInterrupt):
            run(on_two_hosts(), script, nodes=2)
    finally:
        signal.signal(signal.SIGINT, before)

    assert sorted(path.name for path in tmp_path.glob("ended-*")) == ["ended-a", "ended-b"]


def test_a_shell_that_is_not_there_is_named():
    engine = TorchrunEngine(hosts=("a",), node_shell="no-such-shell {node}")

    with pytest.raises(LaunchError, match="node a: no-such-shell cannot be started: No such file"):
        run(engine, "true")


def test_more_nodes_than_hosts_are_refused():
    with pytest.raises(LaunchError, match="needs 3 nodes, and there is a, b; name them in"):
        run(on_two_hosts(), "true", nodes=3)
