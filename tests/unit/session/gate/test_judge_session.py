"""One metric is judged by its stored sessions, the machine's other cases and the control."""

from __future__ import annotations

import msgspec
import pytest

from ddp_perf.core.verdict import Outcome
from ddp_perf.session.gate.judge_suite import JudgingContext, judge_suite
from ddp_perf.stats.summary import summaries_of
from tests.builders import (
    make_baseline,
    make_case_baseline,
    make_cases,
    make_environment,
    make_measurement,
    make_session,
)

(CASE,) = make_cases(tolerances={"step_time": 0.05, "tail": 0.05}, world_sizes=[1])
JITTER = (1.0, 1.002, 0.998, 1.001, 0.999)
QUIET = (1.0, 1.003, 0.997, 1.002, 0.998, 1.001)


def sessions(levels, *, controls=None, torch="2.13.0"):
    """Return one session for each step time in units of 10 ms; ``controls`` in units of 2 ms."""
    return [
        msgspec.structs.replace(
            make_session(
                [0.010 * level * factor for factor in JITTER], day=day, control=0.002 * control
            ),
            environment=make_environment(torch=torch),
        )
        for day, (level, control) in enumerate(
            zip(levels, controls or [1.0] * len(levels), strict=True), start=1
        )
    ]


def findings(stored, *, step=1.0, control=1.0, others=()):
    """Return the findings of a session ``step`` times as slow; ``others`` are stored cases."""
    case_of = make_case_baseline(CASE, *stored)
    beside = {f"other {number}": other for number, other in enumerate(others)}
    measured = make_measurement(
        CASE, [0.010 * step * factor for factor in JITTER], control_s=(0.002 * control,) * 8
    )
    context = JudgingContext(
        baseline=make_baseline({CASE.id: case_of, **beside}),
        baseline_path="baselines/x.json",
        environment=make_environment(),
        alpha=0.001,
    )
    found = judge_suite({CASE.id: measured}, summaries_of({CASE.id: measured}), context)
    return {finding.metric: finding.verdict for finding in found}


QUIET_CASES = [make_case_baseline(CASE, *sessions(QUIET)) for _ in range(4)]


def test_few_sessions_are_judged_with_the_prior_of_the_machines_other_cases():
    few = sessions(QUIET[:2])

    alone, beside = findings(few)["step_time"], findings(few, others=QUIET_CASES)["step_time"]

    assert alone.outcome is Outcome.INCONCLUSIVE
    assert beside.outcome is Outcome.PASS


def test_published_and_modelled_cases_do_not_count_for_the_between_session_spread():
    few = sessions(QUIET[:2])
    published = [
        msgspec.structs.replace(case, source=source)
        for case, source in zip(QUIET_CASES, ["published", "modelled"] * 2, strict=True)
    ]

    assert findings(few, others=published)["step_time"] == findings(few)["step_time"]


FOLLOWED = (1.0, 1.1, 0.92, 1.05, 0.95, 1.08)  # the case and the control move alike


def test_the_control_separates_a_slower_machine_from_slower_code():
    verdict = findings(sessions(FOLLOWED, controls=FOLLOWED), step=1.09, control=1.09)["step_time"]

    assert verdict.outcome is Outcome.PASS
    assert "was subtracted" in verdict.reason


def test_the_prior_excludes_what_the_control_explains():
    levels = [followed * quiet for followed, quiet in zip(FOLLOWED, QUIET, strict=True)]
    others = [make_case_baseline(CASE, *sessions(levels, controls=FOLLOWED)) for _ in range(4)]

    verdict = findings(sessions(QUIET[:2]), others=others)["step_time"]

    assert verdict.minimum_detectable < 0.07  # by the other cases' own spread: 30 % and more


@pytest.mark.parametrize("other", range(6))
def test_the_control_does_not_apply_after_one_session_of_other_software(other):
    stored = sessions(FOLLOWED, controls=FOLLOWED)
    stored[other] = sessions(FOLLOWED, controls=FOLLOWED, torch="2.12.0")[other]

    assert "control" not in findings(stored, step=1.09, control=1.09)["step_time"].reason.lower()


def test_the_control_does_not_apply_to_the_tail():
    found = findings(sessions(FOLLOWED, controls=FOLLOWED), step=1.09, control=1.09)

    assert "control" not in found["tail"].reason.lower()
    assert found["tail"].outcome is Outcome.PASS
