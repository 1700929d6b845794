"""A clock under load that is lower than the baseline's explains a slower step, or does not."""

from __future__ import annotations

import pytest

from ddp_perf.core.case import Tolerances
from ddp_perf.core.gpu import GpuLoad
from ddp_perf.core.launch import RankConditions, WarmUp
from ddp_perf.core.verdict import Outcome
from ddp_perf.session.gate.comparability import MachineHistory, with_clocks
from ddp_perf.session.gate.judge_suite import JudgingContext, judge_suite
from ddp_perf.stats.summary import summaries_of
from tests.builders import (
    make_baseline,
    make_case,
    make_case_baseline,
    make_environment,
    make_finding,
    make_launch,
    make_measurement,
    make_session,
    make_utilisation,
)

CASE = make_case(tier="gpu", tolerances=Tolerances(step_time=0.05))
JITTER = (1.0, 1.002, 0.998, 1.001, 0.999)


def found(step_s, *, before=None, memory_before=2619.0, conditions=None, **load):
    """Return the finding about a step that took 10 ms with a clock of ``before`` MHz."""
    clocks = {} if before is None else {"sm_clock_mhz": before, "memory_clock_mhz": memory_before}
    sessions = [
        make_session([0.01 * factor for factor in JITTER], day=day, **clocks) for day in range(1, 7)
    ]
    rank = {"load": GpuLoad(**load)}
    if conditions is not None:
        rank["conditions"] = conditions
    measurement = make_measurement(CASE, [step_s * factor for factor in JITTER], **rank)
    by_id = {CASE.id: measurement}
    context = JudgingContext(
        baseline=make_baseline({CASE.id: make_case_baseline(CASE, *sessions)}),
        baseline_path="baselines/x.json",
        environment=make_environment(),
        alpha=0.001,
    )
    findings = judge_suite(by_id, summaries_of(by_id), context)
    return next(finding for finding in findings if finding.metric == "step_time")


def test_a_locked_clock_is_not_blamed_on_the_code():
    finding = found(0.01 * 1980 / 1200, before=1980.0, sm_clock_mhz=1200)

    assert finding.verdict.outcome is Outcome.INVALID
    assert finding.reason.startswith(
        "GPU clock 1,200 MHz, baseline 1,980 MHz; somebody locked it (nvidia-smi -rgc) or the card"
        " is capped"
    )
    assert "the figures alone give REGRESSION" in finding.reason
    assert finding.excuse.facts[0].startswith("GPU clock 1,200 MHz")
    assert "GPU clock under load 1,980 → 1,200 MHz" in finding.changed


def test_a_clock_explains_no_scaling_cost():
    """The step of one rank has the same clock."""
    slower = make_finding(CASE, Outcome.REGRESSION, metric="efficiency", ratio=1.5, tolerance=0.05)
    measurement = make_measurement(CASE, [0.01], load=GpuLoad(sm_clock_mhz=1200))
    session = make_session([0.01], sm_clock_mhz=1200.0)
    stored = make_case_baseline(CASE, make_session([0.01], sm_clock_mhz=1980.0))
    history = MachineHistory(make_baseline({CASE.id: stored}), make_environment())

    found = with_clocks(slower, measurement, history.clock_changes(CASE.id, session))

    assert "GPU clock under load 1,980 → 1,200 MHz" in found.changed
    assert found.verdict == slower.verdict


def test_a_slow_down_beyond_what_the_clock_explains_stays_a_regression():
    finding = found(0.013, before=1980.0, sm_clock_mhz=1880)

    assert finding.verdict.outcome is Outcome.REGRESSION
    assert "GPU clock 1,880 MHz, baseline 1,980 MHz" in finding.reason


def test_a_clock_that_explains_less_than_half_of_a_slow_down_is_no_cause():
    """1.08 × (1 - 3 %) is within the tolerance of 5 %."""
    assert found(0.0108, before=1980.0, sm_clock_mhz=1920).verdict.outcome is Outcome.REGRESSION


def test_a_memory_clock_counts_as_well():
    finding = found(
        0.012, before=1980.0, sm_clock_mhz=1980, memory_before=2619.0, memory_clock_mhz=2100
    )

    assert finding.verdict.outcome is Outcome.INVALID
    assert finding.reason.startswith("GPU memory clock 2,100 MHz, baseline 2,619 MHz")


def test_a_power_limit_that_the_ranks_reach_is_a_part_of_the_steps_cost():
    finding = found(0.0115, before=1980.0, sm_clock_mhz=1750, throttle=("power cap",))

    assert finding.verdict.outcome is Outcome.REGRESSION
    assert finding.reason.endswith(
        "the ranks reach the power limit, which is a part of the step's cost"
    )


@pytest.mark.parametrize(
    ("step_s", "clock", "outcome"),
    [
        pytest.param(0.0115, 1300, Outcome.INVALID, id="it cost clock"),
        pytest.param(0.0100, 1500, Outcome.PASS, id="the card is as warm in each session"),
        pytest.param(0.0115, 1500, Outcome.REGRESSION, id="slower at the same clock"),
    ],
)
def test_heat_is_judged_by_the_clock_that_it_cost(step_s, clock, outcome):
    """A T4 is slowed by heat all the time."""
    finding = found(
        step_s,
        before=1500.0,
        sm_clock_mhz=clock,
        throttle=("power cap", "heat (software)"),
        conditions=RankConditions(gpu_heat=0.9, gpu_slowed=False),
    )

    assert finding.verdict.outcome is outcome
    assert ("heat holds it down" in finding.reason) is (clock == 1300)


@pytest.mark.parametrize("clocks", [{}, {"before": 1980.0}, {"sm_clock_mhz": 1200}])
def test_an_unknown_clock_explains_nothing(clocks):
    finding = found(0.015, **clocks)

    assert finding.verdict.outcome is Outcome.REGRESSION
    assert not any("clock" in change for change in finding.changed)


def test_a_higher_clock_is_a_changed_condition():
    finding = found(0.008, before=1200.0, sm_clock_mhz=1980)

    assert finding.verdict.outcome is Outcome.IMPROVEMENT
    assert "GPU clock under load 1,200 → 1,980 MHz" in finding.changed


@pytest.mark.parametrize(
    ("sampled", "clock"), [(None, 1500.0), (1410.5, 1410.5)], ids=["readings", "samples"]
)
def test_the_clock_of_a_launch_is_the_mean_over_its_steps_on_its_slowest_gpu(sampled, clock):
    warm_up = WarmUp(steps=30, steady=True, step_s=0.01, load=GpuLoad(sm_clock_mhz=1600))
    used = make_utilisation(gpu={"sm_clock_mhz": sampled})
    launch = make_launch(
        make_case(tier="gpu", world_size=2),
        extra_warmup=warm_up,
        load=GpuLoad(sm_clock_mhz=1400, memory_clock_mhz=2619),
        utilisation=used,
    )

    assert launch.clocks_mhz == {"sm_clock_mhz": clock, "memory_clock_mhz": 2619}
