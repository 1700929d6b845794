"""The second stage of a session: what is launched, in which order, and what is noted."""

from __future__ import annotations

import shutil

import msgspec
import pytest

from ddp_perf.core.injection import parse_injection
from ddp_perf.core.verdict import Outcome
from ddp_perf.duel.run import run_duel
from ddp_perf.errors import SideError
from ddp_perf.session.measure.storable import kept_if_ended
from ddp_perf.settle import settling
from tests.unit.duel.played_sides import PlayedSide
from tests.unit.settle.settled_project import finding
from tests.works import make_site

PASS, REGRESSION, UNDECIDED = Outcome.PASS, Outcome.REGRESSION, Outcome.UNDECIDED


def outcomes(result):
    return [one.verdict.outcome for one in result.findings]


def sides(project, *labels, a=None, b=None):
    """Play both sides, and return their launchers. Side B has the changes ``b``."""
    played = PlayedSide(project.clock, 1, **(a or {})), PlayedSide(project.clock, 2, **(b or {}))
    project.play(*played, *labels)
    return played


@pytest.fixture
def edited(project):
    """A baseline of the code before an edit that the cases read."""
    baseline = project.baseline(project.session(1), project.session(2))
    project.edit()
    return baseline


# Code that did not change.


@pytest.mark.parametrize("budget_s", [0, 600])
def test_unchanged_code_passes_without_a_launch(project, budget_s):
    baseline = project.baseline(project.session(1))

    result = project.settle(project.result(), baseline, budget_s=budget_s)

    assert outcomes(result) == [PASS, PASS]
    assert project.opened == []
    for case in project.cases():
        noted = result.settled[case.id]
        assert (noted.unchanged, noted.pairs, noted.reference[:10]) == (True, 0, "2026-01-01")
    assert project.partial[-1] == result


def test_the_unchanged_code_of_a_session_with_edits_passes(project):
    """The same uncommitted edits as then."""
    project.edit()
    baseline = project.baseline(project.session(1))

    assert outcomes(project.settle(project.result(), baseline)) == [PASS, PASS]


def test_without_a_budget_changed_code_keeps_its_verdicts(project, edited):
    result = project.settle(project.result(), edited, budget_s=0)

    assert outcomes(result) == [UNDECIDED] * 2
    assert (result.settled, project.opened) == ({}, [])


def test_unchanged_code_that_is_red_by_itself_is_red_by_the_machine(project):
    baseline = project.baseline(project.session(1, host="a"))

    result = project.settle(project.result(REGRESSION, host="b"), baseline)

    assert outcomes(result) == [REGRESSION] * 2
    assert "the machine got slower (host a → b)" in result.findings[0].reason
    noted = next(iter(result.settled.values()))
    assert noted.machine == ("step time +20.0 %", "host a → b")
    assert project.opened == []


def test_a_mended_case_turns_green(project):
    """Edits that were red are taken back."""
    good = project.session(1)
    project.edit()
    bad = project.session(2, verdicts={"step_time": REGRESSION})
    project.edit("def build(context):\n    return context\n")
    findings = [finding(case, REGRESSION, by_itself=UNDECIDED) for case in project.cases()]

    result = project.settle(project.result(findings=findings), project.baseline(good, bad))

    assert outcomes(result) == [PASS, PASS]
    assert project.opened == []


def test_an_audit_launches_unchanged_code_as_well(project):
    baseline = project.baseline(project.session(1))
    sides(project)

    result = project.settle(project.result(), baseline, blind=True)

    assert all(one.pairs for one in result.settled.values())
    assert not any(one.unchanged for one in result.settled.values())


# Code that changed.


def test_slower_code_is_red_and_its_changed_lines_are_named(project, edited):
    a, b = sides(project, b={"slower": 1.4, "cpu": 1.4})

    result = project.settle(project.result(), edited)

    assert outcomes(result) == [REGRESSION] * 2
    noted = result.settled[project.cases()[0].id]
    assert noted.commit == project.state().commit[:12]
    assert noted.changed == ("model.py, which its workload imports",)
    assert noted.causes == ("changed line: model.py:2: return slow(context)",)
    assert noted.pairs == len(b.asked) / 2
    assert sum(one.seconds for one in result.settled.values()) == pytest.approx(
        len(a.asked) + len(b.asked)  # of a second each, with those that calibrate
    )
    assert (noted.needed_s, noted.problem) == (None, None)
    assert project.said[0].startswith(
        f"settling 2 cases of quick beside {noted.label}, for 10 min at most"
    )
    assert "(model.py, which its workload imports)" in project.said[0]
    assert len(a.asked) - len(b.asked) == 2 * 3  # three launches of the session calibrate


def test_lines_that_do_more_are_named_in_the_place_of_changed_ones(project, edited):
    edit = make_site(2, "return slow(context)", file="model.py")
    sides(project, b={"slower": 1.4, "work": 3, "site": edit})

    result = project.settle(project.result(), edited)

    noted = result.settled[project.cases()[0].id]
    assert [site.line for site in noted.lines] == [2]
    assert noted.causes[0] == "edited line: model.py:2 Block.forward: return slow(context)"
    assert not any(cause.startswith("changed line") for cause in noted.causes)


def test_code_that_is_as_fast_is_cleared_also_of_a_regression(project, edited):
    sides(project)

    result = project.settle(project.result(REGRESSION), edited)

    assert outcomes(result) == [PASS] * 2
    assert result.settled[project.cases()[0].id].causes == ()
    assert {one.by_itself for one in result.findings} == {REGRESSION}


def test_faster_code_is_an_improvement(project, edited):
    sides(project, b={"slower": 0.7, "cpu": 0.7})

    assert outcomes(project.settle(project.result(), edited)) == [Outcome.IMPROVEMENT] * 2


def test_cases_that_are_clear_are_not_launched(project, edited):
    one, two = project.cases()
    _, b = sides(project)
    findings = [finding(one, PASS), finding(two, UNDECIDED)]

    result = project.settle(project.result(findings=findings), edited)

    assert {name for name, _ in b.asked} == {two.id}
    assert result.settled.keys() == {two.id}


def test_the_most_suspicious_cases_are_launched_first_while_there_is_time(project, edited):
    one, two = project.cases()
    findings = [finding(one, UNDECIDED), finding(two, REGRESSION)]
    _, b = sides(project)
    began = project.clock.now
    # A first look takes 12 launches and a fifth, besides 15 s for the servers.
    result = project.settle(project.result(findings=findings), edited, budget_s=40)
    spent_s = project.clock.now - began

    assert {name for name, _ in b.asked} == {two.id}
    assert outcomes(result) == [UNDECIDED, PASS]
    noted = result.settled[one.id]
    assert noted.problem == "there was no time for it"
    assert noted.needed_s == pytest.approx(spent_s + 1.2 * (15 + 12))
    assert spent_s > 10
    assert (noted.pairs, noted.changed) == (0, ("model.py, which its workload imports",))


def test_no_time_for_any_case_says_what_would_be_enough(project, edited):
    result = project.settle(project.result(), edited, budget_s=20)

    assert outcomes(result) == [UNDECIDED] * 2
    assert project.opened == []
    needed = [one.needed_s for one in result.settled.values()]
    assert needed == pytest.approx([1.2 * (15 + 2 * 12)] * 2)


def test_undecided_pairs_name_the_time_that_would_be_enough(project, edited):
    noise = {"noise": 0.15, "cpu_noise": 0.15}
    sides(project, a=noise, b={**noise, "slower": 1.06, "cpu": 1.06})
    (_, two) = project.cases()
    findings = [finding(case, UNDECIDED if case == two else PASS) for case in project.cases()]

    result = project.settle(project.result(findings=findings), edited, budget_s=60)

    noted = result.settled[two.id]
    assert result.findings[1].verdict.outcome is UNDECIDED
    assert noted.pairs > 6
    assert noted.needed_s is None or noted.needed_s > 60


def test_a_budget_that_turns_out_too_small_is_stated(project, edited):
    """Launches of side A take much longer than those of the session did."""
    sides(project, a={"launch_s": 50.0})

    result = project.settle(project.result(), edited, budget_s=80)

    assert outcomes(result) == [UNDECIDED] * 2
    for one in result.settled.values():
        assert one.needed_s > 80
        assert "has no room" in one.problem


# What cannot be launched.


def test_a_case_that_fails_on_side_a_is_settled_beside_the_next_session(project):
    first = project.session(1)
    project.repository.commit({"model.py": "def build(c):\n    return c\n"}, "second")
    baseline = project.baseline(first, project.session(2))
    project.edit()
    labels = [f"the session of 2026-01-0{day} (" for day in (1, 2)]
    commits = [one.environment.commit[:8] for one in next(iter(baseline.cases.values())).sessions]
    older, newer = (f"{label}{commit})" for label, commit in zip(labels, commits, strict=True))
    sides(project, older, a={"fails_at": 1})
    sides(project, newer)

    result = project.settle(project.result(), baseline)

    one, two = (result.settled[case.id] for case in project.cases())
    assert project.opened == [older, newer]
    assert (one.label, two.label) == (newer, older)
    assert outcomes(result) == [PASS, PASS]
    assert f"{older} does not run: side A: exited with code 3" in one.problem
    assert two.problem is None


def test_a_case_that_no_stored_code_can_run_says_so(project):
    baseline = project.baseline(project.session(1))
    project.edit()
    sides(project, a={"fails_at": 1})
    (one, two) = project.cases()

    result = project.settle(project.result(), baseline)

    noted = result.settled[one.id]
    assert result.findings[0].verdict.outcome is UNDECIDED
    assert noted.pairs == 0
    assert "does not run: side A: exited with code 3" in noted.problem
    assert result.settled[two.id].pairs


def test_a_case_that_fails_on_todays_side_says_so_and_tries_no_other(project, edited):
    sides(project, b={"fails_at": 1})

    result = project.settle(project.result(), edited)

    failed = [one for one in result.settled.values() if not one.pairs]
    assert [one.problem for one in failed] == ["side B: exited with code 3"]
    assert len(project.opened) == 1


@pytest.mark.parametrize("later", ["not there", "there"])
def test_a_commit_that_is_gone_is_skipped_for_a_later_one(project, later):
    gone = project.session(1, commit="0" * 12, tree="0" * 40)
    rest = [project.session(2)] if later == "there" else []
    baseline = project.baseline(gone, *rest)
    project.edit()
    sides(project)

    result = project.settle(project.result(), baseline)

    noted = result.settled[project.cases()[0].id]
    why = (
        "the session of 2026-01-01 (00000000) cannot run: its commit 00000000 is not in this clone"
    )
    assert noted.problem.startswith(why)
    assert bool(noted.pairs) is bool(rest)
    assert outcomes(result) == [PASS if rest else UNDECIDED] * 2
    assert len(project.opened) == len(rest)


def test_without_a_session_that_has_its_code_nothing_is_launched(project):
    baseline = project.baseline(project.session(1, tree=None))

    result = project.settle(project.result(), baseline)

    assert project.opened == []
    assert {one.problem for one in result.settled.values()} == {
        "no stored session has the state of its code"
    }


def test_several_nodes_are_not_settled(project, edited):
    result = project.result()
    measured = {
        name: msgspec.structs.replace(
            one, case=msgspec.structs.replace(one.case, launcher="kubernetes")
        )
        for name, one in result.measurements.items()
    }

    found = project.settle(msgspec.structs.replace(result, measurements=measured), edited)

    assert project.opened == []
    assert all("by the forkserver" in one.problem for one in found.settled.values())


def test_an_error_of_a_side_is_one_line_and_ends_nothing(project, edited):
    project.sides[None] = SideError("the checkout is gone; make it again")

    result = project.settle(project.result(), edited)

    assert outcomes(result) == [UNDECIDED] * 2
    assert {one.problem for one in result.settled.values()} == {
        "the checkout is gone; make it again"
    }


def test_a_suite_that_the_older_code_lacks_is_settled_beside_a_later_session(project):
    """Its file had another name."""
    project.repository.git("mv", "bench_configs/quick.yaml", "bench_configs/old.yaml")
    project.repository.git("commit", "--quiet", "--message", "another name")
    cases = project.cases("old")
    first = project.session(1)
    project.repository.git("mv", "bench_configs/old.yaml", "bench_configs/quick.yaml")
    project.repository.git("commit", "--quiet", "--message", "the name")
    baseline = project.baseline(first, project.session(2))
    project.edit()
    sides(project)
    older = project.path.parent / "older"
    older.mkdir()
    project.older[f"the session of 2026-01-01 ({first.environment.commit[:8]})"] = older

    result = project.settle(project.result(), baseline)

    assert {case.id for case in cases} == result.settled.keys()
    assert len(project.opened) == 2
    assert outcomes(result) == [PASS, PASS]
    assert all("does not run: " in one.problem for one in result.settled.values())


def test_a_failed_case_and_one_without_a_baseline_are_left_alone(project, edited):
    one, two = project.cases()
    result = project.result(findings=[finding(two, Outcome.NO_BASELINE)])
    failed = msgspec.structs.replace(result.measurements[one.id], launches=())
    result = msgspec.structs.replace(result, measurements={**result.measurements, one.id: failed})
    baseline = msgspec.structs.replace(edited, cases={one.id: edited.cases[one.id]})

    assert project.settle(result, baseline) == result


def test_the_code_of_the_newest_red_session_stays_red_without_a_launch(project):
    good = project.session(1)
    project.edit()
    baseline = project.baseline(good, project.session(2, verdicts={"step_time": REGRESSION}))

    result = project.settle(project.result(REGRESSION), baseline)

    assert project.opened == []
    assert outcomes(result) == [REGRESSION] * 2


def test_other_code_than_that_of_the_newest_red_session_is_launched(project):
    good = project.session(1)
    project.edit()
    baseline = project.baseline(good, project.session(2, verdicts={"step_time": REGRESSION}))
    project.edit("def build(context):\n    return faster(context)\n")
    sides(project)

    result = project.settle(project.result(REGRESSION), baseline)

    assert outcomes(result) == [PASS] * 2


def test_a_server_that_does_not_start_again_is_why_a_case_stays_undecided(project, edited):
    restless = {"noise": 0.3, "cpu_noise": 0.3}
    sides(project, a=restless, b={**restless, "cannot_restart": True})

    result = project.settle(project.result(), edited)

    assert outcomes(result) == [UNDECIDED] * 2
    assert {(one.pairs, one.problem) for one in result.settled.values()} == {(3, "no such image")}


# The rate, the time, and injections.


def rates(monkeypatch):
    """Note the rate of each duel, and the number of its cases."""
    noted = []

    def noting(request, *arguments, **options):
        noted.append(request.false_alarm_rate)
        return run_duel(request, *arguments, **options)

    monkeypatch.setattr(settling, "run_duel", noting)
    return noted


def test_the_rates_of_a_session_add_up_to_three_quarters_of_its_own(project, monkeypatch):
    project.suite("other", "net")
    baselines = {
        suite: project.baseline(project.session(1), suite=suite) for suite in ("quick", "other")
    }
    project.edit()
    project.edit(name="net.py")
    noted = rates(monkeypatch)
    sides(project)
    settling = project.settling(cases=4, budget_s=2000)

    for suite, baseline in baselines.items():
        settling(project.result(suite=suite), baseline, project.partial.append)

    assert sum(noted) == pytest.approx(0.75 * 0.01)
    assert len(noted) == 2


def test_batches_of_one_suite_share_its_rate(project, monkeypatch):
    """The cases of two references cannot be in one duel."""
    one, two = project.cases()
    first = project.baseline(project.session(1))
    project.repository.commit({"model.py": "def build(c):\n    return c\n"}, "second")
    second = project.baseline(project.session(2))
    baseline = msgspec.structs.replace(
        first, cases={one.id: first.cases[one.id], two.id: second.cases[two.id]}
    )
    project.edit()
    noted = rates(monkeypatch)
    sides(project)

    result = project.settle(project.result(), baseline)

    assert len(project.opened) == 2
    assert noted == pytest.approx([0.75 * 0.01 / 2] * 2)
    assert outcomes(result) == [PASS, PASS]


def test_a_case_that_was_settled_is_not_settled_again_by_a_later_measurement(
    project, edited, monkeypatch
):
    """As a test that requests a further case of the suite: the result has both then."""
    one, two = project.cases()
    noted = rates(monkeypatch)
    sides(project, b={"slower": 1.4, "cpu": 1.4})
    settling = project.settling(cases=2)
    whole = project.result()
    part = msgspec.structs.replace(
        whole, measurements={one.id: whole.measurements[one.id]}, findings=whole.findings[:1]
    )

    first = settling(part, edited, project.partial.append)
    again = msgspec.structs.replace(
        first, measurements=whole.measurements, findings=(*first.findings, whole.findings[1])
    )
    second = settling(again, edited, project.partial.append)

    assert second.settled[one.id] == first.settled[one.id]
    assert second.findings[0] == first.findings[0]
    assert second.settled.keys() == {one.id, two.id}
    assert sum(noted) == pytest.approx(0.75 * 0.01)


def test_suites_share_the_time_of_the_session(project):
    project.suite("other", "net")
    baselines = {
        suite: project.baseline(project.session(1), suite=suite) for suite in ("quick", "other")
    }
    project.edit()
    project.edit(name="net.py")
    restless = {"noise": 0.3, "cpu_noise": 0.3}
    sides(project, a=restless, b=restless)
    settling = project.settling(cases=4, budget_s=400)
    spent = []

    for suite, baseline in baselines.items():
        began = project.clock.now
        settling(project.result(suite=suite), baseline, project.partial.append)
        spent.append(project.clock.now - began)

    assert 150 < spent[0] <= 210  # half of it, while another suite follows
    assert 150 < spent[1] <= 400 - spent[0] + 10


def test_injections_slow_todays_side_alone(project, edited):
    given = {"A": [], "B": []}
    launchers = sides(project)
    for name, side in zip("AB", launchers, strict=True):
        launch = side.launch
        side.launch = lambda request, name=name, launch=launch: (
            given[name].append(request.injections) or launch(request)
        )
    slow = (parse_injection("compute:20%"),)

    project.settle(project.result(), edited, injections=slow)

    assert set(given["A"]) == {()}
    assert set(given["B"]) == {slow}


def test_injected_ranks_are_not_taken_for_unchanged_code(project):
    baseline = project.baseline(project.session(1))
    sides(project, b={"slower": 1.4, "cpu": 1.4})

    result = project.settle(
        project.result(), baseline, injections=(parse_injection("compute:20%"),)
    )

    assert outcomes(result) == [REGRESSION] * 2


# An interrupt, and edits in the meantime.


def test_an_interrupt_keeps_what_is_decided_and_stores_the_session(project):
    first, second = project.baseline(project.session(1)), None
    project.repository.commit({"model.py": "def build(c):\n    return c\n"}, "second")
    second = project.baseline(project.session(2))
    one, two = project.cases()
    baseline = msgspec.structs.replace(
        first, cases={one.id: first.cases[one.id], two.id: second.cases[two.id]}
    )
    project.edit()
    labels = [
        f"the session of {one.date[:10]} ({one.environment.commit[:8]})"
        for case in baseline.cases.values()
        for one in case.sessions
    ]
    slower = {"slower": 1.4, "cpu": 1.4}
    sides(project, labels[0], b=slower)
    sides(project, labels[1], b={**slower, "interrupt_at": 3})
    stored = []
    result, settle = project.result(), project.settling()

    with (
        pytest.raises(KeyboardInterrupt),
        kept_if_ended(
            result, project.partial.append, lambda ended: stored.append(ended) or ended
        ) as note,
    ):
        settle(result, baseline, note)

    assert outcomes(stored[0]) == [REGRESSION, UNDECIDED]
    assert project.partial[-1] == stored[0]


def test_an_edit_while_it_is_measured_is_no_verdict(project, edited):
    """Launches before and after it do not compare."""
    older = project.path.parent / "older"
    shutil.copytree(project.path, older)
    project.older[f"the session of 2026-01-01 ({project.state().commit[:8]})"] = older
    _, b = sides(project, b={"slower": 1.4, "cpu": 1.4})
    launch = b.launch

    def launch_and_edit(request):
        if len(b.asked) == 3:
            project.edit("def build(context):\n    return edited(context)\n")
        return launch(request)

    b.launch = launch_and_edit

    result = project.settle(project.result(), edited)

    assert outcomes(result) == [UNDECIDED] * 2
    assert all(
        "model.py was edited while it was measured" in one.problem
        for one in result.settled.values()
    )
