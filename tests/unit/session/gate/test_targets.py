"""Absolute targets are judged by the launches of a session, whatever the baseline contains."""

from __future__ import annotations

import msgspec
import pytest

from ddp_perf.core.launch import RankConditions
from ddp_perf.core.target import TARGET_SPECS, Target
from ddp_perf.core.verdict import Outcome
from ddp_perf.session.gate.judge_again import judge_again
from ddp_perf.session.gate.judge_suite import JudgingContext, judge_suite
from ddp_perf.session.result import Conclusion, conclude
from ddp_perf.stats.summary import summaries_of
from tests.builders import (
    make_acknowledgement,
    make_baseline,
    make_case_baseline,
    make_cases,
    make_collectives,
    make_environment,
    make_failure,
    make_measurement,
    make_probe,
    make_result,
    with_conditions,
)

ONE, TWO = make_cases()
STEPS = [0.0100, 0.0101, 0.0099]  # 2 ranks, 64 each: 12,800 samples a second
FILE = "bench_configs/x.yaml"


def target(figure, bound, unit="", **changes):
    return Target(figure=figure, bound=bound, unit=unit, file=FILE, **changes)


def with_target(case, *targets):
    return msgspec.structs.replace(case, targets=targets)


def measured(*targets, one_s=STEPS, two_s=STEPS, **rank):
    """Return one rank, and two ranks with these targets."""
    return [
        make_measurement(ONE, one_s, **rank),
        make_measurement(with_target(TWO, *targets), two_s, **rank),
    ]


def judged(measurements, *, key="cpu-some-2c-host", baseline=None, compared=None):
    """Return the findings on targets, by case and metric."""
    by_id = {one.case.id: one for one in measurements}
    context = JudgingContext(
        baseline=baseline or make_baseline(),
        baseline_path="baselines/x.json",
        environment=make_environment(accelerator_key=key),
        alpha=0.001,
        compared=compared,
    )
    found = judge_suite(by_id, summaries_of(by_id), context)
    return {one.metric: one for one in found if one.target is not None}


def finding_of(figure, bound, unit="", **changes):
    return judged(measured(target(figure, bound, unit), **changes))[f"target:{figure}"]


@pytest.mark.parametrize(
    ("figure", "bound", "unit", "outcome", "reason"),
    [
        ("throughput", 12_000, "", "MEETS", "throughput 12,8.. samples/s (interval 12,"),
        ("throughput", 6_000, "/rank", "MEETS", "samples/s per rank (interval"),
        ("throughput", 7_000, "/rank", "MISSES", "at least 7,000 samples/s per rank in"),
        ("step_time", 0.011, "ms", "MEETS", "step time 10 ms (interval 9.4"),
        ("step_time", 0.009, "ms", "MISSES", "misses the target of at most 9 ms in"),
        ("peak_memory", 1000, "MB", "MEETS", "peak memory 0.001 MB"),
        ("peak_memory", 900, "MB", "MISSES", "misses the target of at most 0.0009 MB"),
        ("efficiency", 0.95, "", "MEETS", "efficiency 1 (interval 1 to 1, 3 launches)"),
    ],
)
def test_a_figure_is_judged_by_the_interval_of_the_launches(figure, bound, unit, outcome, reason):
    finding = finding_of(figure, bound, unit)

    assert finding.verdict.outcome.value == f"{outcome} TARGET"
    start, _, rest = reason.partition("12,8..")
    assert start in finding.reason
    assert rest in finding.reason
    assert finding.reason.endswith(f"in {FILE}")
    assert finding.launches == 3


def test_efficiency_is_the_throughput_of_each_round_against_one_rank():
    finding = finding_of("efficiency", 0.85, two_s=[0.0125, 0.0126, 0.0124])

    assert finding.value == pytest.approx(0.8, rel=1e-3)
    assert finding.verdict.outcome is Outcome.MISSES_TARGET
    low, high = finding.value_interval
    assert finding.reason == (
        f"efficiency {finding.value:.4g} (interval {low:.4g} to {high:.4g}, 3 launches) misses"
        f" the target of at least 0.85 in {FILE}"
    )


@pytest.mark.parametrize(("bound", "outcome"), [(0.15, "MISSES"), (0.35, "MEETS")])
def test_exposed_communication_is_a_share_of_the_probed_step(bound, outcome):
    finding = finding_of("exposed_communication", bound, probe=make_probe(exposed=0.003))

    assert finding.value == pytest.approx(0.003 / 0.0101)
    assert finding.verdict.outcome.value == f"{outcome} TARGET"


def test_a_step_without_exposed_communication_meets_its_target():
    finding = finding_of("exposed_communication", 0.15, probe=make_probe(exposed=0.0))

    assert (finding.value, finding.verdict.outcome) == (0.0, Outcome.MEETS_TARGET)


def test_launches_that_differ_leave_it_undecided_with_the_launches_that_would_decide():
    finding = finding_of("step_time", 0.0102, "ms", two_s=[0.0100, 0.0105, 0.0095])

    assert finding.verdict.outcome is Outcome.UNDECIDED
    more = finding.verdict.more_launches
    assert finding.reason.endswith(
        f"does not decide the target of at most 10.2 ms in {FILE}; about {more} more launches would"
        " decide it"
    )


def test_one_launch_decides_nothing():
    finding = finding_of("step_time", 0.02, "ms", one_s=[0.01], two_s=[0.01])

    assert finding.verdict.outcome is Outcome.UNDECIDED
    assert "one launch does not show how launches differ" in finding.reason


def test_mfu_is_of_each_launch_and_impossible_without_a_known_peak():
    gpu = msgspec.structs.replace(
        with_target(TWO, target("mfu", 0.35)), tier="gpu", precision="fp16"
    )
    by_half = int(0.5 * 125e12 * 0.01)
    measurement = [make_measurement(gpu, STEPS, flops=by_half, flops_by_format={"fp16": by_half})]

    known = judged(measurement, key="v100-sxm2-16gb")["target:mfu"]
    unknown = judged(measurement, key="rtx-9999")["target:mfu"]

    assert known.value == pytest.approx(0.5, rel=1e-3)
    assert known.verdict.outcome is Outcome.MEETS_TARGET
    assert unknown.verdict.outcome is Outcome.INVALID
    assert "no dense peak of rtx-9999 is known for all of: fp16; name the accel" in unknown.reason
    assert FILE in unknown.reason


@pytest.mark.parametrize(
    ("figure", "why"),
    [
        ("efficiency", "there is no one-rank case to compare with"),
        ("exposed_communication", "no launch has it"),
        ("mfu", "no operation of its step was counted"),
    ],
)
def test_a_figure_that_was_not_measured_is_invalid_and_never_a_pass(figure, why):
    alone = msgspec.structs.replace(with_target(TWO, target(figure, 0.5)), single=None)
    (finding,) = judged([make_measurement(alone, STEPS)]).values()

    assert finding.verdict.outcome is Outcome.INVALID
    assert why in finding.reason


def test_a_collective_is_judged_by_its_bus_bandwidth():
    case = with_target(make_collectives()[0], target("busbw", 1e6, "MB/s"))
    (finding,) = judged([make_measurement(case, STEPS)]).values()

    calls = case.collective.calls * case.collective.payload
    assert finding.value == pytest.approx(calls / 0.01, rel=1e-3)  # factor 1 for two ranks
    assert finding.verdict.outcome is Outcome.MEETS_TARGET


def test_only_targets_of_this_accelerator_are_judged_and_the_first_one_applies():
    targets = [
        target("throughput", 1e9, accelerators=("v100*",)),
        target("throughput", 5, accelerators=("cpu-*",)),
        target("throughput", 1e9),
    ]

    assert judged(measured(*targets))["target:throughput"].target == targets[1]
    assert judged(measured(targets[0])) == {}


@pytest.mark.parametrize(
    ("conditions", "outcome"),
    [
        pytest.param(RankConditions(gpu_slowed=True), Outcome.MISSES_TARGET, id="GPU: heat"),
        pytest.param(RankConditions(overheated=True), Outcome.INVALID, id="CPU: heat"),
        pytest.param(RankConditions(slow_clock=0.5), Outcome.INVALID, id="CPU: clock"),
        pytest.param(RankConditions(gpu_shared=True), Outcome.INVALID, id="GPU: others"),
        pytest.param(RankConditions(stolen=0.5), Outcome.INVALID, id="the hypervisor"),
        pytest.param(RankConditions(gpu_errors=True), Outcome.INVALID, id="wrong figures"),
        pytest.param(RankConditions(gpu_slowed=True, gpu_shared=True), Outcome.INVALID, id="both"),
    ],
)
def test_the_heat_of_a_gpu_excuses_no_missed_target_and_others_do(conditions, outcome):
    one, two = measured(target("throughput", 20_000))
    (finding,) = judged([one, with_conditions(two, *[conditions] * 3)]).values()

    assert finding.verdict.outcome is outcome
    assert "3 of 3 launches were disturbed" in finding.reason


def test_a_target_that_is_met_in_spite_of_heat_is_no_pass():
    """Heat may help a share: slower computation hides more communication."""
    one, two = measured(target("throughput", 5))
    hot = RankConditions(gpu_slowed=True)
    (finding,) = judged([one, with_conditions(two, hot, hot, hot)]).values()

    assert finding.verdict.outcome is Outcome.INVALID
    assert "the figures alone give MEETS TARGET" in finding.reason


def test_disturbed_launches_make_it_invalid_except_for_memory():
    one, two = measured(target("throughput", 5), target("peak_memory", 2000, "MB"))
    busy = RankConditions(foreign=0.5)
    found = judged([one, with_conditions(two, busy, busy, None)])

    assert found["target:throughput"].verdict.outcome is Outcome.INVALID
    assert "the figures alone give MEETS TARGET" in found["target:throughput"].reason
    assert found["target:peak_memory"].verdict.outcome is Outcome.MEETS_TARGET


def test_stalls_count_from_the_tolerance_on_where_the_figure_contains_them():
    one, two = measured(target("throughput", 5), target("step_time", 1.0, "ms"))
    two = make_measurement(two.case, [(0.01,) * 30] * 3, waited_s=(0.0,) * 30)
    busy = RankConditions(foreign=0.1)  # above the tolerance of 5 %, below 15 %
    found = judged([one, with_conditions(two, busy, busy, busy)])

    assert found["target:throughput"].verdict.outcome is Outcome.INVALID
    assert found["target:step_time"].verdict.outcome is Outcome.MEETS_TARGET


def test_a_failed_case_has_no_finding_on_a_target():
    one, two = measured(target("throughput", 5))

    assert judged([one, msgspec.structs.replace(two, failures=(make_failure(TWO),))]) == {}


def test_a_comparison_of_two_states_judges_no_target():
    assert judged(measured(target("throughput", 5)), compared={}) == {}


def test_a_target_needs_no_baseline_and_a_baseline_does_not_change_it():
    stored = make_baseline({case.id: make_case_baseline(case) for case in (ONE, TWO)})

    without = judged(measured(target("throughput", 1e9)))
    assert without == judged(measured(target("throughput", 1e9)), baseline=stored)
    assert without["target:throughput"].verdict.outcome is Outcome.MISSES_TARGET


def again(*targets, acknowledged=(), **changes):
    result = make_result(measured(*targets, **changes))
    return judge_again(
        result, make_baseline(acknowledged=acknowledged), baseline_path="baselines/x.json"
    )


def test_results_are_judged_again_by_the_targets_that_they_contain():
    result = again(target("throughput", 1e9))
    finding = result.finding(TWO.id, "target:throughput")

    assert finding.verdict.outcome is Outcome.MISSES_TARGET
    assert conclude(result.findings, failed=False, missing=False) is Conclusion.REGRESSION
    decoded = msgspec.json.decode(msgspec.json.encode(result), type=type(result))
    assert decoded.finding(TWO.id, "target:throughput") == finding


def test_the_two_looks_of_a_session_are_judged_again_as_they_were():
    case = with_target(TWO, target("step_time", 0.0102, "ms"))
    steps = [0.0100, 0.0105, 0.0095, *[0.0099, 0.0101] * 5]
    result = make_result([make_measurement(case, steps)], looks={TWO.id: (3, 13)})
    finding = judge_again(result, make_baseline(), baseline_path="x").finding(
        TWO.id, "target:step_time"
    )

    assert [look.launches for look in finding.earlier] == [3]
    assert finding.launches == 13


@pytest.mark.parametrize(
    ("until", "bound", "state"),
    [
        ("2026-12-31", 1e9, "expected"),
        ("2026-01-01", 1e9, "expired"),
        ("2026-12-31", 5, "over"),
    ],
)
def test_a_missed_target_may_be_acknowledged_until_a_date(until, bound, state):
    given = make_acknowledgement(TWO, metric="target:throughput", until=until)
    finding = again(target("throughput", bound), acknowledged=(given,)).finding(
        TWO.id, "target:throughput"
    )

    assert finding.known.state == state


@pytest.mark.parametrize("figure", TARGET_SPECS)
def test_every_figure_of_a_suite_file_has_a_finding(figure):
    case = make_collectives()[0] if figure == "busbw" else TWO
    case = with_target(case, target(figure, 0.5, next(iter(TARGET_SPECS[figure].units))))

    assert list(judged([make_measurement(case, STEPS)])) == [f"target:{figure}"]


def test_a_time_that_the_hardware_cannot_have_meets_no_target():
    gpu = msgspec.structs.replace(
        with_target(TWO, target("mfu", 0.35), target("throughput", 5)), tier="gpu", precision="fp16"
    )
    found = judged(
        [make_measurement(gpu, STEPS, flops=int(2 * 125e12 * 0.01))], key="v100-sxm2-16gb"
    )

    assert {one.verdict.outcome for one in found.values()} == {Outcome.INVALID}
    assert "a measurement error: 250 TFLOP/s are more" in found["target:throughput"].reason
