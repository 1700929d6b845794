"""Undecided cases get more launches."""

from __future__ import annotations

import msgspec

from ddp_perf.core.verdict import Outcome
from ddp_perf.session.measure.rounds import launches_before_next_look, looks_of
from tests.builders import (
    make_baseline,
    make_case_baseline,
    make_cases,
    make_failure,
    make_finding,
    make_measurement,
    make_session,
)

ONE, TWO = make_cases(launches=5)
LOOKS = {ONE.id: (5, 10, 20), TWO.id: (5, 10, 20)}


def measured(launches=5):
    """Return the measurements of both cases; each launch took a second."""
    return {case.id: make_measurement(case, [0.01] * launches) for case in (ONE, TWO)}


def open_finding(case, *, launches=5, more=2, **changes):
    return make_finding(case, Outcome.UNDECIDED, launches=launches, more_launches=more, **changes)


def test_looks_follow_from_the_budget_and_the_launch_time_of_the_baseline():
    session = make_session([1.0])  # a second a step: 12 s a launch and what it costs to start
    baseline = make_baseline({ONE.id: make_case_baseline(ONE, session)})

    assert looks_of([ONE, TWO], baseline, budget_s=125) == {ONE.id: (5, 10), TWO.id: (5,)}
    assert looks_of([ONE], baseline, budget_s=0) == {ONE.id: (5,)}


def test_a_long_overhead_of_launches_leaves_fewer_looks():
    """Return a GPU case of 60 steps of 1 ms whose launches took 4 s in the baseline."""
    session = msgspec.structs.replace(make_session([0.001]), overhead_s=4.0)
    baseline = make_baseline({ONE.id: make_case_baseline(ONE, session)})

    assert looks_of([ONE], baseline, budget_s=60) == {ONE.id: (5, 14)}


def test_only_an_undecided_case_gets_more_launches():
    findings = [open_finding(ONE), make_finding(TWO, Outcome.PASS, launches=5)]

    assert launches_before_next_look(measured(), findings, LOOKS, budget_s=60) == {ONE.id: 5}


def test_any_undecided_metric_gets_more_launches():
    findings = [make_finding(ONE, Outcome.PASS, launches=5), open_finding(ONE, metric="tail")]

    assert launches_before_next_look(measured(), findings, LOOKS, budget_s=60) == {ONE.id: 5}


def test_undecided_scaling_gets_launches_of_the_single_rank_case():
    findings = [open_finding(TWO, metric="efficiency")]

    assert launches_before_next_look(measured(), findings, LOOKS, budget_s=60) == {
        TWO.id: 5,
        ONE.id: 5,
    }


def test_launches_slower_than_in_the_baseline_spend_the_budget():
    findings = [open_finding(ONE)]  # five launches of a second each

    assert launches_before_next_look(measured(), findings, LOOKS, budget_s=10) == {ONE.id: 5}
    assert launches_before_next_look(measured(), findings, LOOKS, budget_s=9) == {}


def test_a_failed_case_gets_no_more_launches():
    broken = measured()
    broken[ONE.id] = msgspec.structs.replace(broken[ONE.id], failures=(make_failure(ONE),))

    assert launches_before_next_look(broken, [open_finding(ONE)], LOOKS, budget_s=60) == {}


def test_the_single_rank_case_gets_launches_only_for_scaling():
    findings = [open_finding(TWO)]

    assert launches_before_next_look(measured(), findings, LOOKS, budget_s=60) == {TWO.id: 5}


def test_a_case_without_a_single_rank_case_gets_only_its_own_launches():
    alone = msgspec.structs.replace(TWO, single=None)
    measurements = {TWO.id: make_measurement(alone, [0.01] * 5)}
    findings = [open_finding(TWO, metric="efficiency")]

    assert launches_before_next_look(measurements, findings, LOOKS, budget_s=60) == {TWO.id: 5}


def test_the_undecided_metric_that_needs_most_launches_decides():
    """After ten launches, the step time has its next look after twenty."""
    measurements = {**measured(), TWO.id: make_measurement(TWO, [0.01] * 10)}
    findings = [
        open_finding(ONE),
        open_finding(TWO, metric="efficiency", launches=10),
        open_finding(ONE, metric="tail"),
    ]

    more = launches_before_next_look(measurements, findings, LOOKS, budget_s=600)

    assert more == {TWO.id: 10, ONE.id: 10}
