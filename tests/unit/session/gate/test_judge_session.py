"""One metric is judged by its stored sessions, the machine's other cases and the control."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from ddp_perf.core.baseline import Rebaseline
from ddp_perf.core.metric import EFFICIENCY
from ddp_perf.core.verdict import Outcome, SessionPrior
from ddp_perf.session.gate.comparability import MachineHistory, controls
from ddp_perf.session.gate.judge_suite import JudgingContext, judge_suite
from ddp_perf.stats.summary import summaries_of
from tests.builders import (
    make_baseline,
    make_case_baseline,
    make_cases,
    make_collectives,
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

    assert alone.outcome is Outcome.UNDECIDED
    assert beside.outcome is Outcome.PASS


def prior_of(count, metric, *, others=()):
    beside = {f"other {number}": other for number, other in enumerate(others)}
    stored = make_case_baseline(CASE, *sessions(QUIET[:count]))
    baseline = make_baseline({CASE.id: stored, **beside})
    return MachineHistory(baseline, make_environment()).prior(CASE, metric)


@pytest.mark.parametrize(
    ("metric", "sd"), [("step_time", 0.03), ("tail", 0.03), ("peak_memory", 0.01)]
)
def test_a_spread_is_assumed_by_metric_while_little_is_known(metric, sd):
    assumed = SessionPrior(sd=sd, degrees_of_freedom=4.0, assumed=True)

    assert prior_of(2, metric) == prior_of(6, metric) == assumed
    assert prior_of(2, metric, others=QUIET_CASES[:1]) == assumed
    assert not prior_of(3, metric, others=QUIET_CASES[:1]).assumed


def test_the_allocator_of_a_gpu_is_assumed_to_repeat_its_peak():
    (case,) = make_cases(tier="gpu", world_sizes=[1])
    baseline = make_baseline({case.id: make_case_baseline(case)})

    history = MachineHistory(baseline, make_environment())

    assert history.prior(case, "peak_memory").sd == 0.001
    assert history.prior(case, "step_time").sd == 0.03


def test_efficiency_is_assumed_to_differ_by_four_per_cent():
    assert EFFICIENCY.assumed_sd == 0.04


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
    assert "is subtracted" in verdict.reason


def test_the_prior_excludes_what_the_control_explains():
    levels = [followed * quiet for followed, quiet in zip(FOLLOWED, QUIET, strict=True)]
    others = [make_case_baseline(CASE, *sessions(levels, controls=FOLLOWED)) for _ in range(4)]

    verdict = findings(sessions(QUIET[:2]), others=others)["step_time"]

    assert verdict.minimum_detectable < 0.07  # by the other cases' own spread: 30 % and more


NOW, OLD, OLDER = "2.13.0", "2.12.0", "2.11.0"


def with_software(levels, torch, *, old=1.0, older=1.0):
    """Return one session for each version; the control of older ones has other speeds."""
    speed = {NOW: 1.0, OLD: old, OLDER: older}
    made = []
    for number, version in enumerate(torch):
        controls = [level * speed[version] for level in levels]
        made.append(sessions(levels, controls=controls, torch=version)[number])
    return made


@pytest.mark.parametrize(
    "torch",
    [
        [OLD] * 3 + [NOW] * 3,
        [NOW] * 3 + [OLD] * 3,
        [NOW, OLD, NOW, OLD, NOW, NOW],
        [OLDER, OLDER, OLD, NOW, NOW, NOW],
    ],
    ids=["upgraded", "went back", "alternating", "upgraded twice"],
)
def test_the_control_of_other_software_is_scaled_to_the_present_one(torch):
    """Each software has its own control; only its moves around that level are the machine's."""
    mixed = with_software(FOLLOWED, torch, old=1.5, older=0.4)

    found = controls(mixed, "step_time", make_environment())

    for version in set(torch):
        mine = [number for number, one in enumerate(torch) if one == version]
        expected = [FOLLOWED[number] / np.median([FOLLOWED[n] for n in mine]) for number in mine]
        present = np.median([FOLLOWED[n] for n, one in enumerate(torch) if one == NOW])
        assert [found[n][0] / 0.002 for n in mine] == pytest.approx(
            [present * one for one in expected]
        )


@pytest.mark.parametrize("torch", [[OLD] * 3 + [NOW] * 3, [NOW, NOW, OLD, OLD, OLD, NOW]])
def test_an_upgrade_that_moves_the_control_does_not_hide_a_slow_down(torch):
    verdict = findings(with_software(QUIET, torch, old=1.3), step=1.15)["step_time"]

    assert verdict.outcome is Outcome.REGRESSION
    assert verdict.ratio == pytest.approx(1.15, rel=0.01)


@pytest.mark.parametrize(("same", "applies"), [(2, False), (3, True)])
def test_the_control_applies_from_three_sessions_of_the_present_software_on(same, applies):
    torch = [OLD] * (6 - same) + [NOW] * same

    found = findings(with_software(FOLLOWED, torch), step=1.09, control=1.09)["step_time"]

    assert ("matrix product" in found.reason) is applies


def test_a_stored_session_without_a_control_leaves_it_out():
    stored = sessions(FOLLOWED, controls=FOLLOWED)
    launches = tuple({k: v for k, v in x.items() if k != "control"} for x in stored[1].launches)
    stored[1] = msgspec.structs.replace(stored[1], launches=launches)

    assert controls(stored, "step_time", make_environment()) is None


def test_a_collective_and_a_training_case_inform_no_prior_of_each_other():
    restless = [1.0, 1.3, 0.7, 1.2, 0.8, 1.1]
    collective = make_collectives()[0]
    others = [
        make_case_baseline(collective, *sessions([level * (1 + n / 100) for level in restless]))
        for n in range(4)
    ]
    few = sessions(QUIET[:2])

    assert findings(few, others=others)["step_time"] == findings(few)["step_time"]
    assert findings(few, others=[*others, *QUIET_CASES])["step_time"].outcome is Outcome.PASS


def test_an_accepted_change_of_other_cases_is_no_spread_of_the_machine():
    later = sessions([*QUIET, *(1.3 * level for level in QUIET[:3])])
    entry = Rebaseline(date=later[6].date, commit=None, reason="meant", ratio=1.3)
    few = sessions(QUIET[:2])

    def judged(log):
        others = [make_case_baseline(CASE, *later, log=log) for _ in range(4)]
        return findings(few, others=others)["step_time"].outcome

    assert judged((entry,)) is Outcome.PASS
    assert judged(()) is Outcome.UNDECIDED


def test_sessions_that_were_judged_slower_do_not_inform_the_verdict():
    slow = [
        msgspec.structs.replace(session, verdicts={"step_time": Outcome.REGRESSION})
        for session in sessions([*QUIET, 1.2, 1.2, 1.2])[6:]
    ]

    verdict = findings([*sessions(QUIET), *slow], step=1.2)["step_time"]

    assert verdict.outcome is Outcome.REGRESSION
    assert verdict == findings(sessions(QUIET), step=1.2)["step_time"]


def test_the_control_does_not_apply_to_the_tail():
    found = findings(sessions(FOLLOWED, controls=FOLLOWED), step=1.09, control=1.09)

    assert "matrix product" not in found["tail"].reason
    assert found["tail"].outcome is Outcome.PASS
