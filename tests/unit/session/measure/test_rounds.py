"""Launches are interleaved, and their time is estimated before the first one."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from ddp_perf.core.injection import parse_injection
from ddp_perf.session.measure.rounds import (
    audit_length,
    further_length,
    interleave,
    launch_s,
    launch_times,
    session_length,
)
from tests.builders import (
    make_baseline,
    make_case,
    make_case_baseline,
    make_cases,
    make_session,
)
from tests.suites import make_bench

ROOT = Path("checkout")
BENCH = make_bench(ROOT)


def plan_of(cases, bench=BENCH):
    """Return the turns of each case by its schedule."""
    return interleave([(case, case.schedule.launches) for case in cases], bench)


def case_with(launches, case_id):
    case = make_case(id=case_id)
    schedule = msgspec.structs.replace(case.schedule, launches=launches)
    return msgspec.structs.replace(case, schedule=schedule)


def test_cases_are_interleaved():
    plan = plan_of([case_with(2, "a"), case_with(3, "b"), case_with(2, "c")])

    order = [(request.case.id, request.round) for request in plan]
    assert order == [("a", 0), ("b", 0), ("c", 0), ("a", 1), ("b", 1), ("c", 1), ("b", 2)]


def test_later_rounds_follow_the_first():
    plan = interleave([(case_with(5, "a"), 1), (case_with(5, "b"), 2)], BENCH, start=5)

    assert [(request.case.id, request.round) for request in plan] == [("a", 5), ("b", 5), ("b", 6)]


def test_every_launch_has_the_import_paths():
    plan = plan_of([case_with(2, "a")], make_bench(ROOT, import_paths=("here",)))

    assert [request.import_paths for request in plan] == [("here",), ("here",)]


def test_a_case_gets_the_injections_that_apply_to_it():
    injections = tuple(parse_injection(text) for text in ("straggler:1:5ms", "data:5ms"))

    plan = plan_of(make_cases(launches=1), make_bench(ROOT, injections=injections))

    assert [[injection.text for injection in request.injections] for request in plan] == [
        ["data:5ms"],
        ["straggler:1:5ms", "data:5ms"],
    ]


def test_a_plan_without_cases_is_empty():
    assert plan_of([]) == []


def test_the_time_of_a_launch_grows_with_its_steps():
    def seconds(steps):
        case = make_case(id="a")
        schedule = msgspec.structs.replace(case.schedule, steps=steps)
        case = msgspec.structs.replace(case, schedule=schedule)
        stored = make_case_baseline(case, make_session([1.0, 2.0, 99.0]))
        return launch_s(case, make_baseline({"a": stored}))

    assert seconds(20) - seconds(10) == pytest.approx(10 * 2.0)  # the median step


def seconds_of_a_launch(tier, *overheads, steps=10):
    """Return the estimate for a case of 10 ms a step whose sessions have these overheads."""
    case = make_case(id="a", tier=tier)
    schedule = msgspec.structs.replace(case.schedule, steps=steps)
    case = msgspec.structs.replace(case, schedule=schedule)
    sessions = [
        msgspec.structs.replace(make_session([0.01]), overhead_s=overhead) for overhead in overheads
    ]
    return launch_s(case, make_baseline({"a": make_case_baseline(case, *sessions)}))


@pytest.mark.parametrize(
    ("tier", "ten_s", "thousand_s"),
    [("cpu", 0.1, 10.0), ("gpu", 2.5, 10.0)],  # a launch on a GPU takes 2.5 s of steps or more
)
def test_the_estimate_of_a_launch_includes_its_overhead(tier, ten_s, thousand_s):
    assert seconds_of_a_launch(tier, 8.0, 7.0, 90.0) == pytest.approx(8.0 + ten_s, abs=0.05)
    assert seconds_of_a_launch(tier, 7.0, steps=1000) == pytest.approx(7.0 + thousand_s)


def test_only_cases_that_the_baseline_times_have_a_time():
    known, unknown, published = (case_with(1, name) for name in "abc")
    figures = make_case_baseline(published)
    baseline = make_baseline(
        {"a": make_case_baseline(known), "c": msgspec.structs.replace(figures, sessions=())}
    )

    times = launch_times([known, unknown, published], baseline)

    assert times == {"a": launch_s(known, baseline)}


def test_flight_records_of_a_hang_go_under_the_root_by_case(tmp_path):
    one, two = plan_of([case_with(1, "a"), case_with(1, "b")], make_bench(tmp_path))

    assert one.records != two.records
    assert one.records.startswith(str(tmp_path))


def test_the_estimate_is_by_the_typical_step_of_the_stored_sessions():
    case = case_with(1, "a")
    sessions = [make_session([0.01], day=1), make_session([0.03], day=2), make_session([0.02])]

    found = launch_s(case, make_baseline({"a": make_case_baseline(case, *sessions)}))

    assert found == pytest.approx(0.3 + 0.02 * case.schedule.steps)


def test_sessions_without_a_step_time_give_no_estimate():
    case = case_with(1, "a")
    bare = msgspec.structs.replace(make_session([0.01]), launches=({"peak_memory": 1000.0},))

    assert launch_s(case, make_baseline({"a": make_case_baseline(case, bare)})) is None


def test_the_length_of_a_session_is_that_of_its_stored_launches():
    one, two = make_cases(launches=30)
    other = msgspec.structs.replace(one, suite="other")
    stored = {case.id: make_case_baseline(case, make_session([0.1])) for case in (one, two)}
    launch = launch_s(one, make_baseline(stored))

    length = session_length([one, two, other], {"cpu": make_baseline(stored)})

    assert length == f"90 launches of 2 suites, about {90 * launch / 60:.0f} min"


def test_a_launch_on_gpus_that_was_never_timed_counts_with_what_is_assumed_for_it():
    cases = make_cases(launches=30, tier="gpu")

    assert session_length(cases, {"gpu": make_baseline()}) == (
        "60 launches of 1 suite, at least 11 min (60 were never timed: 11 s each is assumed)"
    )


def test_a_launch_on_cpus_that_was_never_timed_has_no_length():
    one, two = make_cases(launches=30)
    stored = {one.id: make_case_baseline(one, make_session([0.1]))}

    assert session_length([one, two], {"cpu": make_baseline()}) == (
        "60 launches of 1 suite, for how long a stored session will show"
    )
    assert "60 launches of 1 suite, at least" in session_length(
        [one, two], {"cpu": make_baseline(stored)}
    )


def test_settling_and_the_audit_are_part_of_the_stated_length():
    assert further_length(0.0, 0.0) == ""
    assert further_length(0.0, 125.0) == "; the audit of the gate: up to 2 min more"
    assert further_length(600.0, 125.0) == (
        "; settling: up to 10 min more; the audit of the gate: up to 2 min more"
    )


def test_the_audit_takes_the_launches_of_the_longest_case_and_its_second_stage():
    one, two = make_cases(launches=30)
    stored = {
        one.id: make_case_baseline(one, make_session([0.1])),
        two.id: make_case_baseline(two, make_session([0.3])),
    }
    baseline = make_baseline(stored)

    longest = audit_length([one, two], {"cpu": baseline}, settle_s=60.0)

    assert longest == pytest.approx(30 * launch_s(two, baseline) + 60)
    assert audit_length([one, two], {"cpu": make_baseline()}, settle_s=60.0) == 0.0
