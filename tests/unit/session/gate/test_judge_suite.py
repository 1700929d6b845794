"""A suite is judged against a baseline: the verdict and reason of each metric."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from ddp_perf.core.baseline import Rebaseline
from ddp_perf.core.case import Tolerances, with_training
from ddp_perf.core.launch import RankConditions
from ddp_perf.core.measurement import LaunchSummary
from ddp_perf.core.metric import EXACT
from ddp_perf.core.verdict import Outcome
from ddp_perf.session.gate.judge_suite import JudgingContext, judge_suite
from ddp_perf.stats.summary import as_session, summaries_of
from ddp_perf.system.host.control_group import CpuUse
from ddp_perf.system.host.processes import FamilyCpu
from ddp_perf.telemetry.conditions import conditions as conditions_between
from ddp_perf.telemetry.sample import Sample
from tests.builders import (
    make_baseline,
    make_case,
    make_case_baseline,
    make_cases,
    make_environment,
    make_failure,
    make_measurement,
    make_session,
    make_stored_structure,
    make_structure,
    with_conditions,
)

ONE, TWO = make_cases(tolerances={"step_time": 0.05, "efficiency": 0.05})
JITTER = (1.0, 1.002, 0.998, 1.001, 0.999)
SESSIONS = (1.0, 1.003, 0.997, 1.002, 0.998, 1.001)
OF_ONE_RANK = {"step_time", "tail", "cpu_time", "peak_memory", "structure", "loss"}  # its metrics


def launches(step_s):
    return [step_s * factor for factor in JITTER]


def stored(case, step_s, *, efficiency=None, **changes):
    """Return six quiet sessions of ``step_s``."""
    figures = {} if efficiency is None else {"efficiency": efficiency}
    sessions = [
        make_session(launches(step_s * session), day=day, **figures)
        for day, session in enumerate(SESSIONS, start=1)
    ]
    return make_case_baseline(case, *sessions, **changes)


@pytest.fixture
def baseline():
    """The baseline: a step of one rank takes 10 ms, a step of two ranks 12 ms."""
    return make_baseline({ONE.id: stored(ONE, 0.010), TWO.id: stored(TWO, 0.012, efficiency=1.2)})


def findings(measurements, baseline, structures=None):
    """Return the findings by case id and metric."""
    by_id = {measurement.case.id: measurement for measurement in measurements}
    context = JudgingContext(
        baseline=baseline,
        baseline_path="baselines/x.json",
        structures=structures or {},
        environment=make_environment(),
        alpha=0.001,
    )
    found = judge_suite(by_id, summaries_of(by_id), context)
    return {(finding.case_id, finding.metric): finding for finding in found}


def outcomes(found, case):
    return {metric: f.verdict.outcome for (case_id, metric), f in found.items() if case_id == case}


def test_an_unchanged_case_passes_in_every_metric(baseline):
    measured = [make_measurement(ONE, launches(0.010)), make_measurement(TWO, launches(0.012))]

    found = findings(measured, baseline)

    assert {finding.verdict.outcome for finding in found.values()} == {Outcome.PASS}
    assert outcomes(found, ONE.id).keys() == OF_ONE_RANK
    assert outcomes(found, TWO.id).keys() == outcomes(found, ONE.id).keys() | {"efficiency"}


def test_a_finding_contains_the_figures_that_it_compared(baseline):
    found = findings([make_measurement(ONE, launches(0.011))], baseline)

    finding = found[ONE.id, "step_time"]
    assert finding.value == pytest.approx(0.011)
    assert finding.baseline == pytest.approx(0.010, rel=0.005)
    assert finding.baseline_date == "2026-01-01T03:04:05+00:00"
    assert finding.verdict.ratio == pytest.approx(1.1, rel=0.01)


def test_slower_steps_are_a_regression_only_of_the_step_time(baseline):
    found = outcomes(findings([make_measurement(ONE, launches(0.013))], baseline), ONE.id)

    assert found.pop("step_time") is Outcome.REGRESSION
    assert set(found.values()) == {Outcome.PASS}


def test_more_memory_is_a_regression_only_of_the_peak_memory(baseline):
    measurement = make_measurement(ONE, launches(0.010), peak_memory=1500)

    found = outcomes(findings([measurement], baseline), ONE.id)

    assert found.pop("peak_memory") is Outcome.REGRESSION
    assert set(found.values()) == {Outcome.PASS}


def test_steps_that_stall_are_a_regression_only_of_the_tail(baseline):
    stalling = [(step_s,) * 9 + (step_s * 3,) for step_s in launches(0.010)]

    found = outcomes(findings([make_measurement(ONE, stalling)], baseline), ONE.id)

    assert found.pop("tail") is Outcome.REGRESSION
    assert set(found.values()) == {Outcome.PASS}


def test_a_case_without_a_baseline_names_the_file_and_the_command(baseline):
    other = make_case(id="other", single=None)

    found = findings([make_measurement(other, launches(0.01))], baseline)

    assert set(outcomes(found, "other").values()) == {Outcome.NO_BASELINE}
    assert found.keys() == {("other", metric) for metric in OF_ONE_RANK}
    for finding in found.values():
        missing = (
            "no structure of this case is stored"
            if finding.metric == "structure"
            else "baselines/x.json has no such case"
        )
        assert finding.reason == f"{missing}; --save-baseline records it"


def test_other_work_is_incomparable_and_names_the_field_and_the_command(baseline):
    wider = with_training(ONE, model={**ONE.training.model, "hidden_dim": 48})

    known = make_stored_structure(ONE)
    found = findings([make_measurement(wider, launches(0.02))], baseline, {ONE.id: known})

    assert set(outcomes(found, ONE.id).values()) == {Outcome.INCOMPARABLE}
    for finding in found.values():
        where = "the stored structure" if finding.metric == "structure" else "baselines/x.json"
        assert where in finding.reason
        assert "model.hidden_dim 32 → 48" in finding.reason
        assert "--save-baseline=accept" in finding.reason


def test_a_slower_group_is_a_regression_of_its_efficiency(baseline):
    measured = [make_measurement(ONE, launches(0.010)), make_measurement(TWO, launches(0.015))]

    found = outcomes(findings(measured, baseline), TWO.id)

    assert found["efficiency"] is found["step_time"] is Outcome.REGRESSION


@pytest.mark.parametrize(
    ("structure", "outcome"),
    [
        ({"parameters": 809}, Outcome.REGRESSION),
        ({"buckets": (1616, 1616)}, Outcome.UNDECIDED),
        ({"parameters": 807}, Outcome.IMPROVEMENT),
    ],
)
def test_a_change_of_structure_is_judged_at_any_step_time(baseline, structure, outcome):
    odd = make_structure(**structure)

    found = findings([make_measurement(ONE, launches(0.010), structure=odd)], baseline)

    finding = found[ONE.id, "structure"]
    assert finding.verdict.outcome is outcome
    assert finding.reason.endswith(
        '; --save-baseline=accept --ddp-reason "…" takes it over, if it is intended'
    )
    assert found[ONE.id, "step_time"].verdict.outcome is Outcome.PASS


def test_the_level_is_that_of_the_first_five_sessions():
    slower = [make_session(launches(0.0102), day=day) for day in range(6, 12)]
    first = [
        make_session(launches(0.010 * session), day=day)
        for day, session in enumerate(SESSIONS[:5], start=1)
    ]
    baseline = make_baseline({ONE.id: make_case_baseline(ONE, *first, *slower)})

    found = findings([make_measurement(ONE, launches(0.0102))], baseline)

    assert found[ONE.id, "step_time"].baseline == pytest.approx(0.010, rel=0.001)
    assert found[ONE.id, "step_time"].verdict.ratio == pytest.approx(1.02, rel=0.005)


def test_a_case_with_a_failed_launch_is_not_judged(baseline):
    measurement = make_measurement(ONE, launches(0.010))
    failed = msgspec.structs.replace(measurement, failures=(make_failure(ONE),))

    assert findings([failed], baseline) == {}


def test_stored_figures_are_rounded_to_significant_digits():
    summary = LaunchSummary(
        round=0,
        values={"step_time": 0.012345678901},
        control_s=0.0098765432109,
        typical_step_s=0.023456789012,
        mean_step_s=0.01,
        p95_step_s=0.01,
        throughput=100.0,
        overhead_s=0.5,
    )

    stored = as_session([summary], make_environment(), "2026-11-21T03:00:00+00:00")

    assert stored.launches == (
        {"step_time": 0.01234568, "control": 0.009876543, "median_step_time": 0.02345679},
    )


def test_a_session_stores_the_overhead_of_its_typical_launch():
    (row,) = summaries_of({ONE.id: make_measurement(ONE, [0.01])})[ONE.id]
    rows = [msgspec.structs.replace(row, overhead_s=overhead) for overhead in (4.00001, 90.0, 3.0)]

    assert as_session(rows, make_environment(), "2026-11-21").overhead_s == 4.0


def test_the_drift_is_reported_after_the_level_was_replaced(baseline):
    moved = msgspec.structs.replace(
        baseline.cases[ONE.id],
        first={"step_time": 0.008},
        log=(Rebaseline(date="2026-01-09", commit=None, reason="known", ratio=1.25),),
    )
    again = msgspec.structs.replace(baseline, cases={**baseline.cases, ONE.id: moved})
    measured = [make_measurement(ONE, launches(0.010))]

    drifts = [
        findings(measured, context)[ONE.id, "step_time"].drift for context in (baseline, again)
    ]

    assert drifts == [None, pytest.approx(1.25, rel=0.01)]


def test_a_metric_without_a_baseline_names_the_command(baseline):
    sessions = tuple(
        msgspec.structs.replace(session, launches=tuple({**launch} for launch in session.launches))
        for session in baseline.cases[ONE.id].sessions
    )
    for session in sessions:
        for launch in session.launches:
            launch.pop("tail")
    lacking = msgspec.structs.replace(baseline.cases[ONE.id], sessions=sessions)
    context = msgspec.structs.replace(baseline, cases={ONE.id: lacking})

    found = findings([make_measurement(ONE, launches(0.010))], context)[ONE.id, "tail"].verdict

    assert found.outcome is Outcome.NO_BASELINE
    assert "--save-baseline adds it" in found.reason


def structure_verdict(baseline, **structure):
    """Judge the case of two ranks, whose structure on any machine is stored."""
    known = make_stored_structure(TWO, make_structure(**structure))
    measurement = make_measurement(TWO, launches(0.012))
    found = findings([measurement], baseline, {TWO.id: known})
    return found[TWO.id, "structure"].verdict.outcome


@pytest.mark.parametrize(
    ("structure", "outcome"),
    [
        ({}, Outcome.PASS),
        ({"parameters": 807}, Outcome.REGRESSION),  # this session has 808
        ({"parameters": 809}, Outcome.IMPROVEMENT),
    ],
)
def test_the_structure_of_any_machine_gates_a_case_without_a_baseline(structure, outcome):
    without = make_baseline({TWO.id: stored(TWO, 0.012, structure=None)})

    assert structure_verdict(make_baseline(), **structure) is outcome
    assert structure_verdict(without, **structure) is outcome


def test_the_structure_of_any_machine_decides_also_where_this_one_has_sessions(baseline):
    assert structure_verdict(baseline, parameters=807) is Outcome.REGRESSION


def test_a_shipped_structure_does_not_judge_times():
    known = make_stored_structure(TWO)
    found = findings([make_measurement(TWO, launches(0.012))], make_baseline(), {TWO.id: known})

    assert found[TWO.id, "step_time"].verdict.outcome is Outcome.NO_BASELINE


def test_a_structure_of_other_work_is_not_compared():
    known = make_stored_structure(TWO)
    known = msgspec.structs.replace(known, options={**TWO.work(), "precision": "bf16"})
    found = findings([make_measurement(TWO, launches(0.012))], make_baseline(), {TWO.id: known})

    assert found[TWO.id, "structure"].verdict.outcome is Outcome.INCOMPARABLE


@pytest.mark.parametrize("step_s", [0.010, 0.016], ids=["as fast", "slower"])
def test_times_are_invalid_on_a_busy_machine(baseline, step_s):
    """CPU time, memory and structure are still judged."""
    busy = with_conditions(
        make_measurement(ONE, launches(step_s)), *[RankConditions(foreign=0.4)] * 5
    )

    found = outcomes(findings([busy], baseline), ONE.id)

    assert found == {
        "step_time": Outcome.INVALID,
        "tail": Outcome.INVALID,
        "cpu_time": Outcome.PASS,
        "peak_memory": Outcome.PASS,
        "structure": Outcome.PASS,
        "loss": Outcome.PASS,
    }


JOB = Path("/sys/fs/cgroup/job")


def watched_for_a_second(*, family_s, used_s, denied_s, stalled_s=0.0, filled=None):
    """Return the conditions of a rank in a control group with these counters."""

    def reading(at_s, *, cpu_s, use, stall_s, **more):
        return Sample(
            at_s=at_s,
            used_at_s=at_s,
            cpu_s=0,
            system_s=0,
            family_cpu=FamilyCpu(on_cores=cpu_s / 2, total=cpu_s),
            group_uses={JOB: use},
            memory_stall_s=stall_s,
            **more,
        )

    idle, use = CpuUse(used=0, throttled=0), CpuUse(used=used_s, throttled=denied_s)
    before = reading(0.0, cpu_s=0.0, use=idle, stall_s=0.0)
    after = reading(1.0, cpu_s=family_s, use=use, stall_s=stalled_s, memory_filled=filled)
    return conditions_between(before, after, pinned=True)


OWN_QUOTA = watched_for_a_second(family_s=0.98, used_s=1.0, denied_s=1.0)
OTHERS_QUOTA = watched_for_a_second(family_s=0.5, used_s=1.0, denied_s=1.0)
OWN_MEMORY = watched_for_a_second(
    family_s=1.0, used_s=1.0, denied_s=0.0, stalled_s=0.4, filled=0.97
)
OTHERS_MEMORY = watched_for_a_second(
    family_s=1.0, used_s=1.0, denied_s=0.0, stalled_s=0.4, filled=0.5
)


@pytest.mark.parametrize(
    ("conditions", "step_s", "outcome", "words"),
    [
        (OWN_QUOTA, 0.020, Outcome.REGRESSION, "the ranks used up the CPU quota themselves"),
        (OWN_QUOTA, 0.010, Outcome.PASS, "the ranks used up the CPU quota themselves"),
        (OTHERS_QUOTA, 0.020, Outcome.INVALID, "the CPU quota of the control group held back"),
        (OWN_MEMORY, 0.020, Outcome.REGRESSION, "the ranks filled the memory themselves"),
        (OTHERS_MEMORY, 0.020, Outcome.INVALID, "processes waited for memory for 40 %"),
    ],
    ids=["twice the CPU", "as ever", "neighbour", "memory leak", "neighbour's memory"],
)
def test_a_limit_is_a_disturbance_only_if_others_caused_it(
    baseline, conditions, step_s, outcome, words
):
    measured = with_conditions(make_measurement(ONE, launches(step_s)), *[conditions] * 5)

    finding = findings([measured], baseline)[ONE.id, "step_time"]

    assert finding.verdict.outcome is outcome
    assert words in finding.reason


def of_machine(baseline, **environment):
    """Return the baseline as measured on a machine with these fields of the environment."""
    cases = {
        case_id: msgspec.structs.replace(
            case,
            sessions=tuple(
                msgspec.structs.replace(session, environment=make_environment(**environment))
                for session in case.sessions
            ),
        )
        for case_id, case in baseline.cases.items()
    }
    return msgspec.structs.replace(baseline, cases=cases)


def test_figures_of_another_machine_are_incomparable_with_the_remedy(baseline):
    baseline = of_machine(baseline, accelerator_key="cpu-other-2c-host")

    found = findings([make_measurement(ONE, launches(0.010))], baseline)

    for metric in EXACT:  # they do not depend on the machine
        assert found.pop((ONE.id, metric)).verdict.outcome is Outcome.PASS
    assert {finding.verdict.outcome for finding in found.values()} == {Outcome.INCOMPARABLE}
    reason = found[ONE.id, "step_time"].reason
    assert "the session of 2026-01-01 is of another machine" in reason
    assert "accelerator cpu-other-2c-host, here cpu-some-2c-host" in reason
    assert "--save-baseline=accept" in reason


def test_other_software_is_judged_and_reported_beside_the_verdict(baseline):
    baseline = of_machine(baseline, torch="2.12.0")

    found = findings([make_measurement(ONE, launches(0.010))], baseline)

    finding = found[ONE.id, "step_time"]
    assert finding.verdict.outcome is Outcome.PASS
    assert finding.changed == ("torch 2.12.0 → 2.13.0",)


def test_an_impossible_mfu_is_a_measurement_error(baseline):
    case = msgspec.structs.replace(ONE, tier="gpu")
    fast = make_measurement(case, launches(0.010), flops=2 * 10**13)
    context = JudgingContext(
        baseline=baseline,
        baseline_path="baselines/h200.json",
        environment=make_environment(accelerator_key="h200"),
        alpha=0.001,
    )

    found = judge_suite({case.id: fast}, summaries_of({case.id: fast}), context)

    *figures, structure, loss = found
    assert {finding.verdict.outcome for finding in figures} == {Outcome.INVALID}
    assert structure.verdict.outcome is Outcome.NO_BASELINE  # it is counted, and not measured
    assert loss.verdict.outcome is Outcome.INVALID
    assert "a measurement error: 2000 TFLOP/s are more than any format of h200" in found[0].reason


@pytest.mark.parametrize("formats", [{"bf16": 3 * 10**12}, {"tf32": 3 * 10**12}, {}], ids=str)
def test_a_model_in_a_faster_format_than_its_cases_precision_is_a_measurement(baseline, formats):
    case = msgspec.structs.replace(ONE, tier="gpu")  # its precision is fp32
    fast = make_measurement(case, launches(0.010), flops=3 * 10**12, flops_by_format=formats)
    context = JudgingContext(
        baseline=baseline,
        baseline_path="baselines/h200.json",
        environment=make_environment(accelerator_key="h200"),
        alpha=0.001,
    )

    found = judge_suite({case.id: fast}, summaries_of({case.id: fast}), context)

    assert Outcome.INVALID not in {finding.verdict.outcome for finding in found}


GATED = make_case(single=None, tier="gpu", tolerances=Tolerances(energy=0.05))


def energy_findings(*, stored_j, joules):
    """Judge a case gated by energy; None: this session's launches have no reading."""
    figures = {} if stored_j is None else {"energy": stored_j}
    sessions = [make_session(launches(0.01), day=day, **figures) for day in range(1, 7)]
    baseline = make_baseline({GATED.id: make_case_baseline(GATED, *sessions)})
    measured = make_measurement(GATED, launches(0.01), energy_j=joules)
    return findings([measured], baseline)[GATED.id, "energy"]


# Two ranks; 12 steps of 128 samples, warm-ups included.
@pytest.mark.parametrize(
    ("joules", "outcome"), [(768.0, Outcome.PASS), (1000.0, Outcome.REGRESSION)]
)
def test_energy_is_judged_like_other_metrics(joules, outcome):
    found = energy_findings(stored_j=1.0, joules=joules)

    assert found.value == pytest.approx(2 * joules / 1536)
    assert found.verdict.outcome is outcome


@pytest.mark.parametrize("stored_j", [1.0, None])
def test_gated_energy_without_a_reading_is_invalid_with_the_remedy(stored_j):
    verdict = energy_findings(stored_j=stored_j, joules=None).verdict

    assert verdict.outcome is Outcome.INVALID
    assert "no launch has a reading: it needs GPUs with NVML's energy counter" in verdict.reason
    assert "raise steps, or set tolerances.energy: null" in verdict.reason


def test_energy_without_a_stored_session_has_no_baseline():
    assert energy_findings(stored_j=None, joules=768.0).verdict.outcome is Outcome.NO_BASELINE


def test_energy_is_shown_and_stored_if_it_is_not_gated(baseline):
    measured = make_measurement(ONE, launches(0.010), energy_j=10.0)

    (session,) = [
        as_session(rows, make_environment(), "d")
        for rows in summaries_of({ONE.id: measured}).values()
    ]

    assert session.values("energy") == [pytest.approx(10 / 768, rel=1e-5)] * 5
    assert "energy" not in outcomes(findings([measured], baseline), ONE.id)


def test_four_ranks_without_a_baseline_are_judged_by_the_shipped_structure_of_two():
    _, two, four = make_cases(world_sizes=[1, 2, 4])
    shipped = {two.id: make_stored_structure(two)}

    def structure(**changes):
        measured = make_measurement(four, [0.010], structure=make_structure(**changes))
        return findings([measured], make_baseline(), shipped)[four.id, "structure"].verdict.outcome

    assert structure() is Outcome.PASS
    assert structure(parameters=809) is Outcome.REGRESSION
