"""The launcher over an engine: its command, its files and its refusals."""

from __future__ import annotations

import msgspec
import pytest

from ddp_perf.core.gpu import NodeHardware
from ddp_perf.core.launch import LaunchFailure, LaunchRequest, LaunchResult, Profiling
from ddp_perf.errors import LaunchError
from ddp_perf.launch.launcher import Runtime
from ddp_perf.launch.nodes.engine import decode_request
from ddp_perf.launch.nodes.node_launcher import NodeLauncher
from tests.builders import (
    make_capacity,
    make_case,
    make_failure,
    make_placement,
    make_rank_result,
)
from tests.unit.launch.nodes.builders import FACTS, make_end, make_outcome

RUNTIME = Runtime(python="3.11.7", torch="2.13.0", cuda=None, cudnn=None, nccl=None, blas="mkl")
CASE = make_case(world_size=2, nodes=2)
RANKS = [
    make_outcome(results=(make_rank_result(placement=make_placement(rank)),)) for rank in (0, 1)
]


class Engine:
    """An engine whose nodes a, b, … end with these outcomes, whatever the command is."""

    node_variable = "NODE"

    def __init__(self, *outcomes):
        self._ends = [
            make_end(name, outcome) for name, outcome in zip("abc", outcomes, strict=False)
        ]
        self.requests = []

    def run(self, command, *, nodes, only, deadline_s):
        self.requests.append(decode_request(command[-1]))
        if only is not None:
            return tuple(end for end in self._ends if end.node == only)
        return tuple(self._ends[:nodes])

    @property
    def nodes(self):
        return tuple(end.node for end in self._ends)

    def close(self):
        self.requests.append("closed")


def test_a_launch_gives_the_results_of_all_nodes():
    launcher = NodeLauncher(Engine(*RANKS), nodes=2)

    outcome = launcher.launch(LaunchRequest(case=CASE, round=4))

    assert isinstance(outcome, LaunchResult)
    assert (outcome.case_id, outcome.round) == (CASE.id, 4)
    assert [rank.placement.rank for rank in outcome.ranks] == [0, 1]


def test_each_launch_has_a_rendezvous_of_its_own():
    engine = Engine(*RANKS)
    launcher = NodeLauncher(engine, nodes=2)

    for round_ in range(2):
        launcher.launch(LaunchRequest(case=CASE, round=round_))

    assert engine.requests[0].id != engine.requests[1].id
    assert engine.requests[1].launch.round == 1


def test_a_launch_goes_to_the_node_that_it_names():
    launcher = NodeLauncher(Engine(make_outcome(), *RANKS), nodes=3, each_node=True)
    request = LaunchRequest(case=make_case(world_size=1), round=0, node="b")

    outcome = launcher.launch(request)

    assert launcher.nodes(CASE) == ("a", "b", "c")
    assert [rank.placement.rank for rank in outcome.ranks] == [0]


def test_a_node_that_is_down_costs_the_others_nothing_if_each_is_measured_by_itself():
    answers = [
        None,
        make_outcome(runtime=RUNTIME, capacity=make_capacity()),
        make_outcome(runtime=RUNTIME, capacity=make_capacity()),
    ]

    assert NodeLauncher(Engine(*answers), nodes=3, each_node=True).runtime() == RUNTIME
    with pytest.raises(LaunchError, match="node a: no rank can be started there"):
        NodeLauncher(Engine(*answers), nodes=3).runtime()
    with pytest.raises(LaunchError, match="node a: no rank can be started there"):
        NodeLauncher(Engine(None, None), nodes=2, each_node=True).runtime()


def test_nodes_that_differ_are_refused_if_each_is_measured_by_itself():
    other = msgspec.structs.replace(FACTS, torch="1.0")
    answers = [
        make_outcome(runtime=RUNTIME, capacity=make_capacity()),
        make_outcome(runtime=RUNTIME, capacity=make_capacity(), facts=other),
    ]

    with pytest.raises(LaunchError, match=r"torch"):
        NodeLauncher(Engine(*answers), nodes=2, each_node=True).runtime()


def test_nodes_get_the_variables_that_change_how_ranks_train(monkeypatch):
    """A shell on another host does not have those of this one."""
    monkeypatch.setenv("TORCH_DISTRIBUTED_DEBUG", "DETAIL")
    engine = Engine(*RANKS)

    NodeLauncher(engine, nodes=2).launch(LaunchRequest(case=CASE, round=0))

    assert engine.requests[0].environ["TORCH_DISTRIBUTED_DEBUG"] == "DETAIL"


def test_the_files_of_all_nodes_are_written_where_the_request_names(tmp_path):
    printed = [
        msgspec.structs.replace(
            outcome, output={f"rank{n}.out": b"x"}, profiles={f"rank{n}.json.gz": b"y"}
        )
        for n, outcome in enumerate(RANKS)
    ]
    request = LaunchRequest(
        case=CASE,
        round=0,
        output=str(tmp_path / "output"),
        profiling=Profiling(steps=3, directory=str(tmp_path / "traces")),
    )

    outcome = NodeLauncher(Engine(*printed), nodes=2).launch(request)

    assert outcome.output.directory == str(tmp_path / "output")
    assert sorted(path.name for path in tmp_path.rglob("rank*")) == [
        *("rank0.json.gz", "rank0.out", "rank1.json.gz", "rank1.out")
    ]


def test_the_flight_records_of_a_failed_launch_are_written(tmp_path):
    failed = make_outcome(failure=make_failure(CASE), records={"rank1.json": b"[]"})
    request = LaunchRequest(case=CASE, round=0, records=str(tmp_path / "hangs"))

    outcome = NodeLauncher(Engine(RANKS[0], failed), nodes=2).launch(request)

    assert isinstance(outcome, LaunchFailure)
    assert outcome.node == "b"
    assert (tmp_path / "hangs" / "rank1.json").read_bytes() == b"[]"


def test_a_node_without_an_outcome_is_a_failed_launch():
    outcome = NodeLauncher(Engine(RANKS[0], None), nodes=2).launch(
        LaunchRequest(case=CASE, round=0)
    )

    assert (outcome.kind, outcome.node) == ("server", "b")


def test_the_versions_are_read_once_on_all_nodes():
    engine = Engine(*(make_outcome(runtime=RUNTIME, capacity=make_capacity()) for _ in range(3)))
    launcher = NodeLauncher(engine, nodes=3)

    assert [launcher.runtime(CASE), launcher.runtime(CASE)] == [RUNTIME, RUNTIME]
    assert [request.launch for request in engine.requests] == [None]


def test_alike_nodes_are_checked_before_the_first_launch():
    other = make_outcome(facts=msgspec.structs.replace(FACTS, driver="570.1"), runtime=RUNTIME)
    launcher = NodeLauncher(
        Engine(make_outcome(runtime=RUNTIME, capacity=make_capacity()), other), nodes=2
    )

    with pytest.raises(LaunchError, match=r"a has 580\.65, b has 570\.1"):
        launcher.runtime(CASE)


def test_a_node_where_torch_cannot_be_imported_is_an_error_in_one_line():
    launcher = NodeLauncher(
        Engine(make_outcome(runtime=RUNTIME, capacity=make_capacity()), make_outcome()), nodes=2
    )

    with pytest.raises(LaunchError, match=r"^node b: no rank can be started there: ") as raised:
        launcher.runtime(CASE)

    assert "\n" not in str(raised.value)


def test_closing_the_launcher_closes_the_engine():
    engine = Engine()

    NodeLauncher(engine).close()

    assert engine.requests == ["closed"]


def test_a_launch_of_several_nodes_has_the_state_of_each():
    states = [NodeHardware(power_limit_w=watts) for watts in (400.0, 300.0)]
    outcomes = [
        msgspec.structs.replace(outcome, facts=msgspec.structs.replace(FACTS, hardware=state))
        for outcome, state in zip(RANKS, states, strict=True)
    ]

    outcome = NodeLauncher(Engine(*outcomes), nodes=2).launch(LaunchRequest(case=CASE, round=0))

    assert outcome.node_hardware == tuple(states)


def test_the_networks_settings_are_forwarded_and_the_libraries_are_those_of_each_node(monkeypatch):
    monkeypatch.setenv("FI_PROVIDER", "efa")
    monkeypatch.setenv("LD_LIBRARY_PATH", "/opt/aws-ofi-nccl/lib")
    engine = Engine(*RANKS)
    case = msgspec.structs.replace(CASE, tier="gpu")

    NodeLauncher(engine, nodes=2).launch(LaunchRequest(case=case, round=0))

    assert engine.requests[0].environ["FI_PROVIDER"] == "efa"
    assert "LD_LIBRARY_PATH" not in engine.requests[0].environ


def test_the_settings_of_a_file_of_nccl_are_those_of_each_node(monkeypatch, tmp_path):
    """As a variable, a setting of the driver's host would come before the nodes' own files."""
    (tmp_path / "nccl.conf").write_text("NCCL_ALGO=Ring\n")
    monkeypatch.setenv("NCCL_CONF_FILE", str(tmp_path / "nccl.conf"))
    monkeypatch.setenv("NCCL_PROTO", "Simple")
    engine = Engine(*RANKS)
    case = msgspec.structs.replace(CASE, tier="gpu")

    NodeLauncher(engine, nodes=2).launch(LaunchRequest(case=case, round=0))

    assert engine.requests[0].environ["NCCL_PROTO"] == "Simple"
    assert "NCCL_ALGO" not in engine.requests[0].environ
