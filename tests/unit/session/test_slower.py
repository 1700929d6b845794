"""A case that got slower is launched some more, and explained; no other is."""

from __future__ import annotations

import itertools

import msgspec
import pytest

from ddp_perf.core.verdict import Outcome
from ddp_perf.session.explain import explain_case
from ddp_perf.session.slower import Explainer
from ddp_perf.session.summaries import as_session, summaries_of
from tests.builders import (
    FakeLauncher,
    NotedProgress,
    make_baseline,
    make_case,
    make_case_baseline,
    make_environment,
    make_failure,
    make_finding,
    make_launch,
    make_measurement,
    make_probe,
    make_result,
    make_structure,
)

CASE = make_case()
JITTER = (1.0, 1.004, 0.996)
ENVIRONMENT = make_environment()


def measured(*, late_s=0.0, **changes):
    """Three launches of 10 ms a step, in which the batch is late by so much."""
    probe = make_probe(data=0.0001 + late_s)
    steps = [(0.0101 + late_s) * factor for factor in JITTER]
    return make_measurement(CASE, steps, **{"probe": probe, **changes})


def stored(measurement):
    rows = summaries_of({CASE.id: measurement})[CASE.id]
    nights = [as_session(rows, ENVIRONMENT, date=f"2026-01-0{day}") for day in (1, 2)]
    return make_case_baseline(CASE, *nights)


BEFORE = stored(measured())


@pytest.fixture
def session():
    """``session(late_s, outcome=…, budget_s=…)``: the result, and what was launched for it."""

    def run(late_s=0.005, *, outcome=Outcome.REGRESSION, budget_s=30.0, failing=False):
        probe = make_probe(data=0.0001 + late_s)
        count = itertools.count()

        def answer(request):
            asked.append(request)
            if failing and next(count) == 1:
                return make_failure(CASE, request.round)
            return make_launch(CASE, request.round, step_s=0.0101 + late_s, probe=probe)

        asked = []
        explainer = Explainer(
            baseline=make_baseline({CASE.id: BEFORE}),
            launcher=FakeLauncher(answer),
            progress=NotedProgress(),
            budget_s=budget_s,
            import_paths=(),
            injections=(),
        )
        result = make_result([measured(late_s=late_s)], findings=(make_finding(CASE, outcome),))
        return explainer.explained(result, [CASE.id]), asked

    return run


def test_a_slower_case_is_launched_again_and_looked_into_for_longer(session):
    result, asked = session()
    assert [request.round for request in asked] == [3, 4, 5]
    assert {request.probe_steps for request in asked} == {32}
    why = result.explanations[CASE.id]
    assert [cause.kind for cause in why.causes] == ["data"]
    assert why.causes[0].change_s == pytest.approx(0.005, rel=0.05)
    assert why.launches == 6


def test_what_was_launched_to_explain_is_kept_and_not_judged(session):
    result, _ = session()
    assert len(result.explaining[CASE.id]) == 3
    assert len(result.measurements[CASE.id].launches) == 3
    assert len(result.summaries[CASE.id]) == 3


@pytest.mark.parametrize(
    "outcome", [each for each in Outcome if each is not Outcome.REGRESSION], ids=lambda each: each
)
def test_nothing_else_is_looked_into(session, outcome):
    result, asked = session(outcome=outcome)
    assert (result.explanations, asked) == ({}, [])


def test_without_a_budget_it_is_explained_by_what_was_judged(session):
    result, asked = session(budget_s=0)
    assert asked == []
    assert result.explanations[CASE.id].launches == 3


def test_a_budget_that_is_spent_ends_the_launches(session):
    assert len(session(budget_s=1.5)[1]) == 2  # each takes a second


def test_a_launch_that_fails_ends_them_and_nothing_else(session):
    result, asked = session(failing=True)
    assert len(asked) == 2
    assert result.explanations[CASE.id].launches == 4


def test_a_baseline_without_terms_explains_nothing():
    nights = [msgspec.structs.replace(night, terms=()) for night in BEFORE.sessions]
    older = msgspec.structs.replace(BEFORE, sessions=tuple(nights))
    assert explain_case(measured(late_s=0.005), older, ENVIRONMENT) is None


def test_launches_without_a_probe_explain_nothing():
    assert explain_case(measured(late_s=0.005, probe=None), BEFORE, ENVIRONMENT) is None


def test_another_structure_is_told_in_words():
    now = measured(late_s=0.005, structure=make_structure(collectives=()))
    (_, other) = explain_case(now, BEFORE, ENVIRONMENT).causes
    assert "1 all_reduce of 3,232 bytes (float32) fewer a step" in other.evidence


def test_a_changed_environment_is_told_with_slow_computation():
    now = make_measurement(CASE, [0.02 * f for f in JITTER], probe=make_probe(forward=0.012))
    newer = msgspec.structs.replace(ENVIRONMENT, torch="2.14.0")
    (cause,) = explain_case(now, BEFORE, newer).causes
    assert cause.kind == "compute"
    assert "torch 2.13.0 → 2.14.0" in cause.evidence
