"""Only a case that got slower is launched again and explained."""

from __future__ import annotations

import itertools

import msgspec
import pytest

from ddp_perf.session.gate.explanation import explain_case
from ddp_perf.session.measure.further_launches import Explainer
from ddp_perf.stats.summary import as_session, summaries_of
from tests.builders import (
    FakeLauncher,
    make_baseline,
    make_case,
    make_case_baseline,
    make_environment,
    make_failure,
    make_launch,
    make_measurement,
    make_probe,
    make_result,
    make_structure,
)
from tests.suites import make_bench

CASE = make_case()
JITTER = (1.0, 1.004, 0.996)
ENVIRONMENT = make_environment()


def measured(*, late_s=0.0, **changes):
    """Return three launches of 10 ms a step whose batch is late by ``late_s``."""
    probe = make_probe(data=0.0001 + late_s)
    steps = [(0.0101 + late_s) * factor for factor in JITTER]
    return make_measurement(CASE, steps, **{"probe": probe, **changes})


def stored(measurement):
    rows = summaries_of({CASE.id: measurement})[CASE.id]
    sessions = [as_session(rows, ENVIRONMENT, date=f"2026-01-0{day}") for day in (1, 2)]
    return make_case_baseline(CASE, *sessions)


BEFORE = stored(measured())


@pytest.fixture
def session(tmp_path):
    """``session(late_s, budget_s=…)`` returns the result and the requests of its launches."""

    def run(late_s=0.005, *, stored=BEFORE, budget_s=30.0, failing=False):
        probe = make_probe(data=0.0001 + late_s)
        count = itertools.count()

        def answer(request):
            asked.append(request)
            if failing and next(count) == 1:
                return make_failure(CASE, request.round)
            step_s = (0.0101 + late_s) * JITTER[request.round % 3]
            return make_launch(CASE, request.round, step_s=step_s, probe=probe)

        asked = []
        explainer = Explainer(
            baseline=make_baseline({CASE.id: stored}),
            bench=make_bench(tmp_path, FakeLauncher(answer)),
            budget_s=budget_s,
        )
        return explainer.explained(make_result([measured(late_s=late_s)]), CASE.id), asked

    return run


def test_a_slower_case_is_launched_again_with_a_longer_probe(session):
    result, asked = session()
    assert [request.round for request in asked] == [3, 4, 5]
    assert {request.probe_steps for request in asked} == {32}
    why = result.explanations[CASE.id]
    assert [cause.kind for cause in why.causes] == ["data"]
    assert why.causes[0].change_s == pytest.approx(0.005, rel=0.05)
    assert why.launches == 3  # the new ones: the judged ones were chosen for being slow


def test_launches_for_an_explanation_are_stored_and_not_judged(session):
    result, _ = session()
    assert len(result.explaining[CASE.id]) == 3
    assert len(result.measurements[CASE.id].launches) == 3
    assert len(result.summaries[CASE.id]) == 3


def test_a_case_without_a_budget_is_explained_by_its_judged_launches(session):
    result, asked = session(budget_s=0)
    assert asked == []
    assert result.explanations[CASE.id].launches == 3


def test_launches_for_an_explanation_stay_within_the_budget(session):
    result, asked = session(budget_s=6.5)  # a second each, and 96 steps of 15 ms to look into
    assert len(asked) == 2
    assert result.explanations[CASE.id].launches == 5  # two alone would tell little


def test_a_baseline_without_terms_causes_no_launches(session):
    sessions = [msgspec.structs.replace(session, terms=()) for session in BEFORE.sessions]
    result, asked = session(stored=msgspec.structs.replace(BEFORE, sessions=tuple(sessions)))
    assert (result.explanations, result.explaining, asked) == ({}, {}, [])


def test_a_failed_launch_ends_the_launches_for_an_explanation(session):
    result, asked = session(failing=True)
    assert len(asked) == 2
    assert result.explanations[CASE.id].launches == 4


def test_a_baseline_without_terms_gives_no_explanation():
    sessions = [msgspec.structs.replace(session, terms=()) for session in BEFORE.sessions]
    older = msgspec.structs.replace(BEFORE, sessions=tuple(sessions))
    assert explain_case(measured(late_s=0.005), older, ENVIRONMENT) is None


def test_launches_without_a_probe_give_no_explanation():
    assert explain_case(measured(late_s=0.005, probe=None), BEFORE, ENVIRONMENT) is None


def test_a_launch_with_an_unknown_term_is_left_out():
    session = BEFORE.sessions[0]
    terms = ({"forward": 0.002}, *session.terms[1:])
    mixed = msgspec.structs.replace(
        BEFORE, sessions=(msgspec.structs.replace(session, terms=terms),)
    )
    (cause,) = explain_case(measured(late_s=0.005), mixed, ENVIRONMENT).causes
    assert cause.kind == "data"


def test_an_explanation_compares_with_the_reference_sessions():
    usual, slower = BEFORE.sessions[0], stored(measured(late_s=0.005)).sessions[0]
    sessions = [
        msgspec.structs.replace(usual if day <= 5 else slower, date=f"2026-01-{day:02}")
        for day in range(1, 29)
    ]
    drifted = msgspec.structs.replace(BEFORE, sessions=tuple(sessions))
    (cause,) = explain_case(measured(late_s=0.005), drifted, ENVIRONMENT).causes
    assert cause.kind == "data"
    assert cause.change_s == pytest.approx(0.005, rel=0.01)


def test_a_changed_structure_is_explained():
    now = measured(late_s=0.005, structure=make_structure(collectives=()))
    (_, other) = explain_case(now, BEFORE, ENVIRONMENT).causes
    assert "1 all_reduce of 3,232 bytes (float32) fewer a step" in other.evidence


def test_a_changed_environment_is_reported_with_slow_computation():
    now = make_measurement(CASE, [0.02 * f for f in JITTER], probe=make_probe(forward=0.012))
    newer = msgspec.structs.replace(ENVIRONMENT, torch="2.14.0")
    (cause,) = explain_case(now, BEFORE, newer).causes
    assert cause.kind == "compute"
    assert "torch 2.13.0 → 2.14.0" in cause.evidence


@pytest.mark.parametrize(("torch", "kind"), [("2.13.0", "machine"), ("2.14.0", "compute")])
def test_a_slower_control_does_not_excuse_an_upgrade(torch, kind):
    probe = make_probe(forward=0.004, backward=0.008, optimizer=0.002)
    steps = [0.0171 * factor for factor in JITTER]
    now = make_measurement(CASE, steps, probe=probe, control_s=(0.004,) * 8)
    newer = msgspec.structs.replace(ENVIRONMENT, torch=torch)
    assert explain_case(now, BEFORE, newer).causes[0].kind == kind
