"""Alike nodes that launch every case one by one, over many sessions of a simulated fleet."""

from __future__ import annotations

import re

import pytest

from ddp_perf.baselines.store import BaselineStore
from ddp_perf.core.verdict import Outcome
from ddp_perf.session.compare_sessions import ComparedSession, compare_sessions, one_side
from ddp_perf.session.gate.judge_again import judge_again
from ddp_perf.session.result import read_results, write_results
from tests import fleets
from tests.fleets import ONE, TWO, Fleet, bad_nodes, names, of_code
from tests.suites import one_session_a_day

RED = {"REGRESSION", "SUSPECT"}
GREEN = {"PASS"}


@pytest.fixture
def fleet(tmp_path, monkeypatch):
    one_session_a_day(monkeypatch)
    return Fleet(tmp_path, seed=1)


def stored(fleet, case=TWO):
    key = fleet.capacity.accelerator_key("cpu")
    return BaselineStore(fleet.directory / "baselines").load(key).cases[case.id]


def test_each_round_launches_the_case_on_every_node_and_begins_with_the_next_one(fleet):
    result = fleet(names(3))

    launches = result.measurements[ONE.id].launches
    assert [one.node for one in launches] == ["n1", "n2", "n3", "n2", "n3", "n1", "n3", "n1", "n2"]
    assert [one.round for one in launches] == [0, 0, 0, 1, 1, 1, 2, 2, 2]


def test_scaling_is_paired_on_each_node(fleet):
    result = fleet(names(2), slower={"n2": 3.0})

    efficiency = [row.values["efficiency"] for row in result.summaries[TWO.id]]
    assert efficiency == pytest.approx([2.0] * 6, rel=0.05)


def test_a_stored_session_keeps_the_node_of_each_launch(fleet):
    result = fleet(names(3))

    (session,) = stored(fleet).sessions
    assert session.nodes == tuple(one.node for one in result.measurements[TWO.id].launches)
    assert session.environment.alike_nodes == 3


@pytest.mark.slow
def test_twenty_sessions_of_an_unchanged_fleet_are_green(fleet):
    sessions = fleet.days(20)

    assert [of_code(one) & RED for one in sessions] == [set()] * 20
    assert [bad_nodes(one) for one in sessions] == [set()] * 20
    assert of_code(sessions[-1]) == GREEN


def test_a_slow_node_is_named_each_day_with_its_first_day_and_the_code_is_green(fleet):
    fleet.days(10)

    sessions = fleet.days(10, slower={"n5": 1.04})

    for number, one in enumerate(sessions, start=1):
        finding = one.finding(TWO.id, "nodes")
        assert finding.verdict.outcome is (Outcome.BAD_NODE if number > 1 else Outcome.SUSPECT)
        assert bad_nodes(one) == ({"n5"} if number > 1 else set())
        assert finding.nodes[0].sessions == number
        assert of_code(one) == GREEN
    assert finding.reason.startswith("node n5 is 3.7 % ")  # it was 0.2 % faster before
    assert finding.reason.endswith(
        "slower than the 7 others, since 2026-01-11 (10 sessions)."
        " Leave such a node out of the cluster file, or drain it, until it is fixed"
    )
    assert "over 7 nodes, without n5" in one.finding(TWO.id, "step_time").reason


def test_a_node_that_is_slow_in_one_session_only_is_suspect_and_never_red(fleet):
    fleet.days(10)

    first = fleet(slower={"n5": 1.2})
    after = fleet.days(3)

    finding = first.finding(TWO.id, "nodes")
    assert finding.verdict.outcome is Outcome.SUSPECT
    assert "slow for the first time: BAD NODE if its next session confirms it" in (finding.reason)
    assert "without n5" in first.finding(TWO.id, "step_time").reason
    assert [bad_nodes(one) for one in (first, *after)] == [set()] * 4
    assert {one.finding(TWO.id, "nodes").verdict.outcome for one in after} == {Outcome.PASS}
    assert [of_code(one) for one in (first, *after)] == [GREEN] * 4


def test_one_slow_launch_of_three_makes_no_node_suspect(fleet):
    fleet.days(10)

    session = fleet(launch=lambda request: 1.2 if (request.node, request.round) == ("n5", 1) else 1)

    assert session.finding(TWO.id, "nodes").verdict.outcome is Outcome.PASS
    assert of_code(session) == GREEN


@pytest.mark.slow
def test_a_mended_node_is_green_again_and_may_become_slow_again(fleet):
    fleet.days(10)
    fleet.days(10, slower={"n5": 1.04})

    mended = fleet.days(3)
    again = fleet.days(3, slower={"n5": 1.04})

    assert [bad_nodes(one) for one in mended] == [set()] * 3
    assert [of_code(one) for one in mended] == [GREEN] * 3
    assert bad_nodes(again[-1]) == {"n5"}
    assert again[-1].finding(TWO.id, "nodes").nodes[0].since[:10] == "2026-01-24"


@pytest.mark.slow
def test_a_slow_node_stays_red_for_sixty_sessions_with_its_first_day(fleet):
    fleet.days(6)

    sessions = fleet.days(60, slower={"n5": 1.04}, cases=(TWO,))

    assert all(bad_nodes(one) == {"n5"} for one in sessions[1:])
    assert not any(of_code(one) & RED for one in sessions)
    assert sessions[-1].finding(TWO.id, "nodes").nodes[0].since[:10] == "2026-01-07"
    assert len(stored(fleet).sessions) < 50


def test_slower_code_is_red_and_no_node_is_named(fleet):
    fleet.days(10)

    sessions = fleet.days(5, code=1.05)

    assert all("REGRESSION" in of_code(one) for one in sessions)
    assert [bad_nodes(one) for one in sessions] == [set()] * 5


def test_slower_code_and_a_slow_node_are_two_findings(fleet):
    fleet.days(10)

    session = fleet.days(2, code=1.05, slower={"n5": 1.06})[-1]

    assert session.finding(TWO.id, "step_time").verdict.outcome is Outcome.REGRESSION
    assert session.finding(TWO.id, "step_time").verdict.ratio == pytest.approx(1.05, abs=0.015)
    assert bad_nodes(session) == {"n5"}


def test_a_node_that_becomes_faster_does_not_hide_slower_code(fleet):
    """It was slow since its first session, and is mended, or replaced under the same name."""
    fleet.days(10, slower={"n5": 1.08})

    mended = fleet.days(4)
    slower = fleet(code=1.05)

    for one in mended:
        assert of_code(one) == GREEN
        assert one.finding(TWO.id, "step_time").verdict.ratio == pytest.approx(1.0, abs=0.015)
    assert slower.finding(TWO.id, "step_time").verdict.outcome is Outcome.REGRESSION
    assert slower.finding(TWO.id, "step_time").verdict.ratio == pytest.approx(1.05, abs=0.015)


def test_two_slow_nodes_are_both_named(fleet):
    fleet.days(10)

    session = fleet.days(2, slower={"n5": 1.04, "n6": 1.05})[-1]

    assert bad_nodes(session) == {"n5", "n6"}
    assert not of_code(session) & RED


def test_a_node_that_is_slow_from_the_first_session_on_never_becomes_its_own_baseline(fleet):
    sessions = fleet.days(12, nodes=names(16), slower={"n5": 1.08}, cases=(TWO,))

    outcomes = [one.finding(TWO.id, "nodes").verdict.outcome for one in sessions]
    assert Outcome.PASS not in outcomes
    assert outcomes[-6:] == [Outcome.BAD_NODE] * 6
    assert sessions[-1].finding(TWO.id, "nodes").nodes[0].since[:10] == "2026-01-01"


def test_few_nodes_do_not_pass_with_one_that_may_always_have_been_slower(fleet):
    """Eight nodes show too little of how far alike nodes may be apart."""
    sessions = fleet.days(6, slower={"n5": 1.06}, cases=(TWO,))

    for one in sessions:
        finding = one.finding(TWO.id, "nodes")
        assert finding.verdict.outcome is not Outcome.PASS
        assert "n5 is" in finding.reason


def test_a_new_and_a_missing_node_change_no_verdict(tmp_path, monkeypatch):
    one_session_a_day(monkeypatch)
    fleet = Fleet(tmp_path, seed=3)
    fleet.days(10)

    new = fleet(names(9))
    missing = fleet(names(6))
    other = fleet(names(8, first=20))

    for one in (new, missing, other):
        assert of_code(one) == GREEN
        assert bad_nodes(one) == set()


@pytest.mark.parametrize("seed", [502, 503])
def test_the_code_is_not_blamed_for_a_node_that_was_never_measured(tmp_path, monkeypatch, seed):
    """Nodes differ by 2 %, and this one may be as slow as any: the interval has room for it."""
    one_session_a_day(monkeypatch)
    monkeypatch.setattr(fleets, "NODE_SD", 0.02)
    fleet = Fleet(tmp_path, seed=seed)
    fleet.days(8, cases=(TWO,))

    verdict = fleet(names(1, first=20), cases=(TWO,)).finding(TWO.id, "step_time").verdict

    assert verdict.outcome is not Outcome.REGRESSION
    assert verdict.interval[0] < 1 < verdict.interval[1]


def test_a_node_that_fails_is_named_and_the_launches_of_the_others_are_kept_and_judged(fleet):
    fleet.days(6)

    session = fleet(fails=lambda request: request.node == "n3" and request.round == 1)

    assert bad_nodes(session) == {"n3"}
    assert "rank 1 on node n3: exited with" in session.finding(TWO.id, "nodes").reason
    launches = session.measurements[TWO.id].launches
    assert [one.node for one in launches].count("n3") == 1
    assert len(launches) == 1 + 7 * 3
    assert of_code(session) == GREEN
    assert len(stored(fleet).sessions) == 7


def test_the_others_are_the_nodes_that_are_compared_and_not_those_that_fail(fleet):
    fleet.days(6)

    fails = {"fails": lambda request: request.node == "n3"}
    session = [fleet(slower={"n5": 1.08}, **fails) for _ in range(2)][-1]

    reason = session.finding(TWO.id, "nodes").reason
    assert "slower than the 6 others" in reason


def test_the_reason_states_that_the_rule_took_each_node_as_a_launch(fleet):
    fleet.days(6, nodes=names(2))

    session = fleet(names(2), slower={"n1": 1.5})

    reason = session.finding(TWO.id, "step_time").reason
    assert "1 of 2 launches were far slower" in reason
    assert reason.endswith("; over 2 nodes, each of which counts as a launch")


def test_a_case_that_fails_on_every_node_has_no_verdict(fleet):
    fleet.days(3)

    session = fleet(fails=lambda request: request.case.id == TWO.id)

    assert session.measurements[TWO.id].failed
    assert {one.node for one in session.measurements[TWO.id].failures} == set(names(8))
    assert {found.metric for found in session.findings if found.case_id == TWO.id} <= {"nodes"}
    assert len(stored(fleet).sessions) == 3


def test_three_nodes_do_not_show_which_of_them_is_slower(fleet):
    sessions = fleet.days(5, nodes=names(3), slower={"n1": 1.2})

    finding = sessions[-1].finding(TWO.id, "nodes")
    assert finding.verdict.outcome is Outcome.UNDECIDED
    assert "measure 4 or more" in finding.reason
    assert TWO.id not in sessions[-1].undecided()


@pytest.mark.slow
def test_a_slow_node_stays_red_beside_one_or_two_others_and_is_no_evidence_of_the_code(fleet):
    fleet.days(10)
    fleet.days(2, slower={"n5": 1.08})

    few = fleet.days(12, nodes=("n4", "n5", "n6"), slower={"n5": 1.08})
    all_again = fleet.days(3, slower={"n5": 1.08})
    mended = fleet.days(2)

    for one in few:
        finding = one.finding(TWO.id, "nodes")
        assert finding.verdict.outcome is Outcome.BAD_NODE
        assert "4 nodes or more show whether it is fixed" in finding.reason
        assert bad_nodes(one) == {"n5"}
        assert not of_code(one) & RED
        assert "over 2 nodes, without n5" in one.finding(TWO.id, "step_time").reason
    assert [one.slow_nodes.keys() for one in stored(fleet).sessions[-6:]] == [
        *[{"n5"}] * 4,
        *[set()] * 2,
    ]
    for one in all_again:
        assert bad_nodes(one) == {"n5"}
        assert one.finding(TWO.id, "nodes").nodes[0].since[:10] == "2026-01-11"
    assert [bad_nodes(one) for one in mended] == [set()] * 2


@pytest.mark.slow
def test_a_slow_node_stays_red_if_it_is_visited_again_after_more_sessions_than_are_kept(fleet):
    fleet.days(6, cases=(ONE,))
    fleet.days(2, slower={"n5": 1.08}, cases=(ONE,))
    before = len(stored(fleet, ONE).sessions)
    fleet.days(40, nodes=names(8, first=9), cases=(ONE,))

    again = fleet(slower={"n5": 1.06}, cases=(ONE,))

    finding = again.finding(ONE.id, "nodes")
    assert bad_nodes(again) == {"n5"}
    assert finding.nodes[0].since[:10] == "2026-01-07"
    assert before + 40 > len(stored(fleet, ONE).sessions)


@pytest.mark.slow
def test_slow_nodes_alone_show_nothing_of_the_code(fleet):
    fleet.days(6)
    fleet.days(2, slower={"n5": 1.2})

    alone = fleet.days(4, nodes=("n5",), slower={"n5": 1.2})
    without = fleet(names(4))

    for one in alone:
        finding = one.finding(TWO.id, "step_time")
        assert bad_nodes(one) == {"n5"}
        assert finding.verdict.outcome is Outcome.UNDECIDED
        assert "every node is slow (n5)" in finding.reason
    assert without.finding(TWO.id, "step_time").sessions == 8  # those of n5 are left out
    assert of_code(without) == GREEN


def test_sessions_that_are_older_than_nodes_still_judge(fleet):
    """Those of one host, which is one node of tonight, have no names of nodes."""
    fleet.days(6, nodes=("n1",), each_node=False)
    assert stored(fleet).sessions[0].nodes == ()

    sessions = fleet.days(6)

    assert not any(of_code(one) & RED for one in sessions)
    assert "REGRESSION" in of_code(fleet(code=1.15))


def test_sessions_of_one_half_day_with_and_without_names_of_nodes_are_one(tmp_path, monkeypatch):
    one_session_a_day(monkeypatch, days=0.25)
    fleet = Fleet(tmp_path, seed=1, pool=None)  # as on GPUs, whose baseline is of their type

    fleet(each_node=False)
    fleet()
    fleet(each_node=False)
    sessions = fleet.days(4)

    assert not any(of_code(one) & RED for one in sessions)


def test_a_session_that_names_no_node_has_the_name_of_the_first_node_to_the_launcher(fleet):
    """The host of pytest may have another name, or be no node: so the node keeps its visits."""
    fleet(("n3", "n4"), each_node=False)

    (session,) = stored(fleet).sessions
    assert session.nodes == ()
    assert session.node_names() == ("n3",) * 3


def test_a_results_file_is_judged_again_with_the_same_findings(fleet):
    fleet.days(10)
    key = fleet.capacity.accelerator_key("cpu")
    before = BaselineStore(fleet.directory / "baselines").load(key)
    session = fleet(slower={"n5": 1.06})
    path = fleet.directory / "results.json"
    write_results(path, [session], complete=True)

    (read,) = read_results(path).suites
    again = judge_again(read, before, baseline_path=session.baseline_path)

    kept = {(found.case_id, found.metric): found for found in session.findings}
    for found in again.findings:
        if found.metric != "structure":  # its file is not given
            assert found == kept[found.case_id, found.metric]


def compared(directory, *, before, after):
    """Compare two sessions that no baseline judged, with n5 slower by these factors."""
    fleet = Fleet(directory, seed=1, cases=(TWO,), save_mode=None)
    old, new = (
        one_side([ComparedSession(name=name, complete=True, suites=(fleet(slower={"n5": by}),))])
        for name, by in (("old", before), ("new", after))
    )
    (judged,) = compare_sessions(old, new).judged
    return judged.finding(TWO.id, "step_time")


def test_a_comparison_leaves_a_slow_node_out_of_both_sides(tmp_path):
    found = compared(tmp_path, before=1.0, after=1.5)

    assert "over 7 nodes, without n5" in found.reason
    assert compared(tmp_path, before=1.0, after=3.0) == found
    assert compared(tmp_path, before=1.3, after=3.0) == found


def test_a_slow_node_is_not_blamed_on_the_code_of_a_session_on_that_node(tmp_path, monkeypatch):
    """Without each_node a case is launched on the first node, until it is slower there."""
    one_session_a_day(monkeypatch)
    fleet = Fleet(tmp_path, seed=1, pool=None)
    fleet.days(8)

    session = fleet(("n1", "n2"), each_node=False, slower={"n1": 1.2}, explain_budget_s=60)

    finding = session.finding(TWO.id, "step_time")
    assert finding.verdict.outcome is Outcome.BAD_NODE
    assert re.match(
        r"not slower on node n2 \(.* there\), so it is node n1 and not the code; on node n1: \+",
        finding.reason,
    )
    assert stored(fleet).sessions[-1].verdicts["step_time"] is Outcome.REGRESSION


def test_a_node_without_a_baseline_does_not_excuse_the_code(fleet):
    """Nothing shows how nodes differ: b may be a faster one, on which the code is slower, too."""
    fleet.days(8, nodes=("a", "b"), each_node=False)

    session = fleet(("a", "b"), each_node=False, slower={"a": 1.2}, explain_budget_s=60)

    finding = session.finding(TWO.id, "step_time")
    assert finding.verdict.outcome is Outcome.REGRESSION
    assert "there), which has no baseline; compare both; on node a: " in finding.reason


def test_slower_code_is_slower_on_another_node_as_well(fleet):
    fleet.days(8, nodes=("a", "b"), each_node=False)

    session = fleet(("a", "b"), each_node=False, code=1.2, explain_budget_s=60)

    finding = session.finding(TWO.id, "step_time")
    assert finding.verdict.outcome is Outcome.REGRESSION
    assert "slower on node b as well" in finding.reason


def test_no_launch_is_sent_elsewhere_without_a_budget_or_another_node(fleet):
    fleet.days(8, nodes=("a", "b"), each_node=False)

    without_budget = fleet(("a", "b"), each_node=False, code=1.2)
    alone = fleet(("a",), each_node=False, code=1.2, explain_budget_s=60)

    assert (without_budget.elsewhere, alone.elsewhere) == ({}, {})


def test_an_interrupt_keeps_the_launches_on_another_node(fleet):
    fleet.days(8, nodes=("a", "b"), each_node=False)
    partial = []

    def fails(request):
        if request.node == "b" and request.round == 1:
            raise KeyboardInterrupt
        return False

    with pytest.raises(KeyboardInterrupt):
        fleet(
            ("a", "b"),
            each_node=False,
            code=1.2,
            fails=fails,
            explain_budget_s=60,
            on_partial=partial.append,
        )

    elsewhere = partial[-1].elsewhere
    assert {case_id: len(one.launches) for case_id, one in elsewhere.items()} == {ONE.id: 1}
    assert len(partial[-1].measurements[TWO.id].launches) == 3
