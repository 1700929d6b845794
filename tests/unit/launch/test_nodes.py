"""A launch over the nodes of an engine: what each is asked, and what becomes of their answers."""

from __future__ import annotations

import contextlib
import shutil

import msgspec
import pytest

from ddp_perf.core.gpu import NodeHardware
from ddp_perf.core.launch import LaunchFailure, LaunchRequest, LaunchResult, Profiling
from ddp_perf.errors import LaunchError
from ddp_perf.launch import server_launcher
from ddp_perf.launch.engine import forwarded_variables
from ddp_perf.launch.protocol import Answer
from ddp_perf.launch.rank_server import ServerLostError
from ddp_perf.launch.server_launcher import ServerLauncher
from tests.builders import make_case, make_failure, make_placement, make_rank_result
from tests.unit.launch.played_servers import (
    RUNTIME,
    PlayedEngine,
    PlayedNode,
    PlayedServer,
    answer_of,
    other_facts,
)

CASE = make_case(world_size=2, nodes=2)
ALONE = make_case(world_size=1)
RESULTS = [make_rank_result(placement=make_placement(rank)) for rank in (0, 1)]
ANSWERS = [answer_of(result) for result in RESULTS]


@pytest.fixture(autouse=True)
def _played(monkeypatch):
    monkeypatch.setattr(server_launcher, "RankServer", PlayedServer)


@pytest.fixture
def launcher_of():
    with contextlib.ExitStack() as stack:

        def make(engine, **options):
            return stack.enter_context(contextlib.closing(ServerLauncher(engine, **options)))

        yield make


def two_nodes(*answers, **fields):
    return PlayedEngine(a=PlayedNode(answers[0]), b=PlayedNode(answers[1]), **fields)


def test_a_launch_gives_the_results_of_all_nodes(launcher_of):
    outcome = launcher_of(two_nodes(*ANSWERS)).launch(LaunchRequest(case=CASE, round=4))

    assert isinstance(outcome, LaunchResult)
    assert (outcome.case_id, outcome.round) == (CASE.id, 4)
    assert [rank.placement.rank for rank in outcome.ranks] == [0, 1]


def test_each_node_gets_its_number_and_where_the_ranks_meet(launcher_of):
    engine = two_nodes(*ANSWERS)
    request = LaunchRequest(case=CASE, round=0)

    launcher_of(engine).launch(request)

    (_, first), (_, second) = engine.asked
    assert [node for node, _ in engine.asked] == ["a", "b"]
    assert [first.number, second.number] == [0, 1]
    assert first.endpoint == second.endpoint == "a:29400"
    assert first.request == second.request == request
    assert first.id == second.id != ""


def test_no_two_launches_have_one_id(launcher_of):
    """Their ranks could meet at one endpoint."""
    engine = PlayedEngine(a=PlayedNode(*ANSWERS[:1] * 2), b=PlayedNode(*ANSWERS[1:] * 2))
    launcher = launcher_of(engine)

    for round_ in range(2):
        launcher.launch(LaunchRequest(case=CASE, round=round_))

    assert len({launch.id for _, launch in engine.asked}) == 2


def test_the_ranks_of_one_node_meet_at_no_port(launcher_of):
    engine = PlayedEngine(a=PlayedNode(ANSWERS[0]))
    request = LaunchRequest(case=ALONE, round=0)

    launcher_of(engine).launch(request)

    ((_, launch),) = engine.asked
    assert (launch.endpoint, launch.number) == (None, 0)


def test_a_second_launch_finds_the_servers_warm(launcher_of):
    engine = PlayedEngine(a=PlayedNode(*ANSWERS[:1] * 2), b=PlayedNode(*ANSWERS[1:] * 2))
    launcher = launcher_of(engine)

    for round_ in range(2):
        launcher.launch(LaunchRequest(case=CASE, round=round_))

    assert [node for node, _, _ in engine.started] == ["a", "b"]


def test_each_environment_has_servers_of_its_own(launcher_of):
    engine = PlayedEngine(a=PlayedNode(*ANSWERS[:1] * 2))
    launcher = launcher_of(engine)

    for env in ({}, {"OMP_NUM_THREADS": "2"}):
        launcher.launch(LaunchRequest(case=msgspec.structs.replace(ALONE, env=env), round=0))

    assert [variables for _, _, variables in engine.started] == [{}, {"OMP_NUM_THREADS": "2"}]


def test_a_launch_goes_to_the_node_that_it_names(launcher_of):
    engine = PlayedEngine(a=PlayedNode(), b=PlayedNode(ANSWERS[0]), c=PlayedNode())
    launcher = launcher_of(engine, each_node=True)

    outcome = launcher.launch(LaunchRequest(case=ALONE, round=0, node="b"))

    assert launcher.nodes(CASE) == ("a", "b", "c")
    assert isinstance(outcome, LaunchResult)


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"case": make_case(world_size=3, nodes=3)}, "needs 3 nodes, and there is a, b"),
        ({"case": ALONE, "node": "z"}, "there is no node 'z'; there are: a, b"),
    ],
)
def test_nodes_that_are_not_there_are_refused(launcher_of, fields, why):
    with pytest.raises(LaunchError, match=why):
        launcher_of(two_nodes(*ANSWERS)).launch(LaunchRequest(round=0, **fields))


def test_a_node_that_is_down_costs_the_others_nothing_if_each_is_measured_by_itself(launcher_of):
    nodes = {"a": PlayedNode(problem="no route"), "b": PlayedNode(), "c": PlayedNode()}

    assert launcher_of(PlayedEngine(**nodes), each_node=True).runtime() == RUNTIME
    with pytest.raises(LaunchError, match=r"^node a: no rank can be started there: no route$"):
        launcher_of(PlayedEngine(**nodes)).runtime()
    with pytest.raises(LaunchError, match="node a: no rank can be started there"):
        launcher_of(PlayedEngine(a=nodes["a"]), each_node=True).runtime()


def test_a_launch_on_a_node_that_is_down_fails_by_its_name(launcher_of):
    engine = PlayedEngine(a=PlayedNode(), b=PlayedNode(problem="no route"))

    outcome = launcher_of(engine).launch(LaunchRequest(case=CASE, round=0))

    assert isinstance(outcome, LaunchFailure)
    assert (outcome.kind, outcome.node) == ("server", "b")
    assert "no route" in outcome.detail
    assert engine.asked == []


@pytest.mark.parametrize(
    ("field", "theirs", "words"),
    [
        ("torch", "2.12.0", "in torch: a has 2.13.0, b has 2.12.0"),
        ("driver", "570.1", "in the driver of the GPUs: a has 580.65, b has 570.1"),
        ("accelerator", "H100", "in their GPUs or processors: a has H200, b has H100"),
    ],
)
@pytest.mark.parametrize("each_node", [False, True])
def test_nodes_that_differ_are_refused_before_the_first_launch(
    launcher_of, field, theirs, words, each_node
):
    other = PlayedNode(facts=other_facts(**{field: theirs}))

    with pytest.raises(LaunchError, match=words):
        launcher_of(PlayedEngine(a=PlayedNode(), b=other), each_node=each_node).runtime(CASE)


def test_the_facts_of_nodes_are_read_once(launcher_of):
    engine = two_nodes(*ANSWERS)
    launcher = launcher_of(engine)

    assert [launcher.runtime(CASE), launcher.runtime(CASE)] == [RUNTIME, RUNTIME]
    assert [node for node, _ in engine.asked] == ["a", "b"]


def test_facts_that_cannot_be_read_are_an_error_in_one_line(launcher_of):
    engine = PlayedEngine(a=PlayedNode(), b=PlayedNode(facts=None))

    with pytest.raises(LaunchError, match=r"^node b: its facts cannot be read: the last line$"):
        launcher_of(engine).runtime(CASE)


def test_the_capacity_is_that_of_the_first_node_by_its_name(launcher_of):
    assert launcher_of(two_nodes(*ANSWERS)).capacity().host.name == "a"


def test_the_capacity_is_that_of_the_first_node_that_answers(launcher_of):
    engine = PlayedEngine(a=PlayedNode(problem="no route"), b=PlayedNode())

    assert launcher_of(engine, each_node=True).capacity().host.name == "b"


def test_the_files_of_all_nodes_are_written_where_the_request_names(launcher_of, tmp_path):
    printed = [
        msgspec.structs.replace(
            answer, output={f"rank{n}.out": b"x"}, profiles={f"rank{n}.json.gz": b"y"}
        )
        for n, answer in enumerate(ANSWERS)
    ]
    request = LaunchRequest(
        case=CASE,
        round=0,
        output=str(tmp_path / "output"),
        profiling=Profiling(steps=3, directory=str(tmp_path / "traces")),
    )

    outcome = launcher_of(two_nodes(*printed)).launch(request)

    assert outcome.output.directory == str(tmp_path / "output")
    assert sorted(path.name for path in tmp_path.rglob("rank*")) == [
        *("rank0.json.gz", "rank0.out", "rank1.json.gz", "rank1.out")
    ]


def test_the_flight_records_of_a_failed_launch_are_written(launcher_of, tmp_path):
    failed = Answer(failure=make_failure(CASE), records={"rank1.json": b"[]"})
    request = LaunchRequest(case=CASE, round=0, records=str(tmp_path / "hangs"))

    outcome = launcher_of(two_nodes(ANSWERS[0], failed)).launch(request)

    assert isinstance(outcome, LaunchFailure)
    assert outcome.node == "b"
    assert (tmp_path / "hangs" / "rank1.json").read_bytes() == b"[]"


def test_files_that_nobody_asked_for_are_not_written(launcher_of, tmp_path, monkeypatch):
    """Code that is measured can forge an answer of its node."""
    monkeypatch.chdir(tmp_path)
    forged = msgspec.structs.replace(ANSWERS[0], records={"rank0.json": b"x"})

    outcome = launcher_of(two_nodes(forged, ANSWERS[1])).launch(LaunchRequest(case=CASE, round=0))

    assert isinstance(outcome, LaunchResult)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("answers", [[Answer(), ANSWERS[1]], [ANSWERS[0], ANSWERS[0]]])
def test_an_answer_without_the_results_of_its_ranks_is_a_failure(launcher_of, answers):
    outcome = launcher_of(two_nodes(*answers)).launch(LaunchRequest(case=CASE, round=0))

    assert "there are results of the ranks" in outcome.detail


def test_a_node_that_is_lost_is_lost_to_all_its_servers(launcher_of):
    engine = PlayedEngine(
        {"a": "the node is down"},
        a=PlayedNode(ANSWERS[0], ServerLostError("it ended"), ANSWERS[0]),
    )
    launcher = launcher_of(engine)
    other = msgspec.structs.replace(ALONE, env={"A": "1"})

    for case in (ALONE, other, ALONE):
        outcome = launcher.launch(LaunchRequest(case=case, round=0))

    assert isinstance(outcome, LaunchResult)
    assert [variables for _, _, variables in engine.started] == [{}, {"A": "1"}, {}]


def test_a_server_that_does_not_start_has_the_reason_that_the_engine_saw(launcher_of, monkeypatch):
    def refuse(server):
        raise LaunchError("exit code 1")

    monkeypatch.setattr(PlayedServer, "greet", refuse)
    monkeypatch.setattr(PlayedServer, "has_started", False)
    engine = two_nodes(*ANSWERS, losses={"a": "job 4 was cancelled"})

    with pytest.raises(LaunchError, match="node a: no rank can be started there: job 4 was cancel"):
        launcher_of(engine).runtime()

    assert sorted(engine.ended) == ["a", "b"]


@pytest.mark.parametrize(
    ("losses", "detail"), [({}, "it ended"), ({"b": "the node is down: no power"}, "no power")]
)
def test_a_server_that_is_lost_is_a_failed_launch_and_replaced(launcher_of, losses, detail):
    engine = PlayedEngine(
        losses,
        a=PlayedNode(ANSWERS[0], ANSWERS[0]),
        b=PlayedNode(ServerLostError("it ended"), ANSWERS[1]),
    )
    launcher = launcher_of(engine)

    failure = launcher.launch(LaunchRequest(case=CASE, round=0))
    after = launcher.launch(LaunchRequest(case=CASE, round=1))

    assert (failure.kind, failure.node, failure.output) == ("server", "b", "the last line")
    assert detail in failure.detail
    assert isinstance(after, LaunchResult)
    assert [node for node, _, _ in engine.started] == ["a", "b", "b"]


def test_closing_the_launcher_ends_the_servers_and_closes_the_engine(launcher_of):
    engine = two_nodes(*ANSWERS)
    launcher = launcher_of(engine)
    launcher.runtime()

    launcher.close()

    assert (sorted(engine.ended), engine.closed) == (["a", "b"], 1)


def test_a_launch_of_several_nodes_has_the_state_of_each(launcher_of):
    states = [NodeHardware(power_limit_w=watts) for watts in (400.0, 300.0)]
    nodes = {
        name: PlayedNode(answer, facts=other_facts(hardware=state))
        for name, answer, state in zip("ab", ANSWERS, states, strict=True)
    }
    launcher = launcher_of(PlayedEngine(**nodes))
    launcher.runtime(CASE)

    outcome = launcher.launch(LaunchRequest(case=CASE, round=0))

    assert outcome.node_hardware == tuple(states)


def test_the_scratch_directory_goes_with_the_launcher(launcher_of, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    launcher = launcher_of(two_nodes(*ANSWERS))
    launcher.runtime()
    assert list(tmp_path.iterdir())

    launcher.close()

    assert not list(tmp_path.iterdir())
    shutil.rmtree(tmp_path)


@pytest.fixture
def variables(monkeypatch, tmp_path):
    (tmp_path / "nccl.conf").write_text("NCCL_ALGO=Ring\n")
    monkeypatch.setenv("NCCL_CONF_FILE", str(tmp_path / "nccl.conf"))
    monkeypatch.setenv("NCCL_PROTO", "Simple")
    monkeypatch.setenv("FI_PROVIDER", "efa")
    monkeypatch.setenv("LD_LIBRARY_PATH", "/opt/aws-ofi-nccl/lib")
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "eth1")
    monkeypatch.setenv("TORCH_DISTRIBUTED_DEBUG", "DETAIL")
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)  # which torch sets in a process
    return {tier: forwarded_variables(tier) for tier in ("cpu", "gpu")}


def test_nodes_get_the_variables_that_change_how_ranks_train(variables):
    """A shell on another host does not have those of this one."""
    assert variables["cpu"] == {"TORCH_DISTRIBUTED_DEBUG": "DETAIL", "GLOO_SOCKET_IFNAME": "eth1"}
    assert variables["gpu"].items() >= {"FI_PROVIDER": "efa", "NCCL_PROTO": "Simple"}.items()


def test_the_libraries_and_the_settings_of_a_file_of_nccl_are_those_of_each_node(variables):
    """As a variable, a setting of the driver's host would come before the nodes' own files."""
    assert not {"LD_LIBRARY_PATH", "NCCL_ALGO"} & variables["gpu"].keys()
