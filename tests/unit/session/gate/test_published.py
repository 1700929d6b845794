"""Published figures are shown beside a case, and gate it only without a stored session."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddp_perf.core.disturbance import RankConditions
from ddp_perf.core.published import PublishedRow, PublishedTable
from ddp_perf.core.verdict import Outcome
from ddp_perf.session.gate.judge_suite import JudgingContext, judge_suite
from ddp_perf.session.gate.published import known_cases
from ddp_perf.stats.summary import summaries_of
from tests.builders import (
    make_baseline,
    make_case_baseline,
    make_cases,
    make_collectives,
    make_environment,
    make_measurement,
    make_session,
    with_conditions,
)

ONE, TWO = make_cases(batch_sizes=[64], steps=12, warmup=2)
ROW = {"case": ONE.id, "world_size": 1, "batch_size": 64, "step_ms": 10.0, "throughput": 6400}


def table(row=ROW, **changes):
    fields = {
        "name": "t",
        "document": "A Report",
        "where": "Table 1",
        "hardware": "1x Some GPU",
        "work": {"workload": "mlp", "precision": "fp32"},
        "tolerance": 0.05,
    }
    return PublishedTable(**{**fields, **changes}, rows=(PublishedRow(**row),))


def judged(measured, baseline, **changes):
    context = JudgingContext(
        baseline=baseline,
        baseline_path="baselines/x.json",
        environment=make_environment(),
        alpha=0.001,
        **changes,
    )
    return judge_suite(measured, summaries_of(measured), context)


def findings(steps_s, *tables, cases=None, **changes):
    """Return the findings by case id and metric; each step of a case takes ``steps_s[case]``."""
    measured = {case.id: make_measurement(case, [step_s] * 5) for case, step_s in steps_s}
    found = judged(measured, make_baseline(cases, published=tables), **changes)
    return {(finding.case_id, finding.metric): finding for finding in found}


def step_time(step_s, *tables, cases=None, **context):
    """Return the finding on one rank's step time; each step takes ``step_s``."""
    return findings([(ONE, step_s)], *tables, cases=cases, **context)[ONE.id, "step_time"]


def efficiency(one_s, two_s, **changes):
    """Return the finding on two ranks' efficiency, with a table that states it."""
    row = {"case": TWO.id, "world_size": 2, "batch_size": 64, **changes.pop("row", {})}
    found = findings([(ONE, one_s), (TWO, two_s)], table(row, **changes))
    return found[TWO.id, "efficiency"]


@pytest.mark.parametrize(
    ("step_s", "outcome"),
    [
        (0.009, Outcome.MEETS_PUBLISHED),
        (0.0104, Outcome.MEETS_PUBLISHED),
        (0.013, Outcome.BELOW_PUBLISHED),
    ],
)
def test_a_published_figure_is_met_within_its_tolerance(step_s, outcome):
    verdict = step_time(step_s, table()).verdict

    assert verdict.outcome is outcome
    assert verdict.ratio == pytest.approx(step_s / 0.010)
    assert verdict.interval is None
    for words in ("A Report", "Table 1", "1x Some GPU", "--save-baseline"):
        assert words in verdict.reason


def test_a_published_step_time_is_compared_with_the_mean_step():
    row = {name: value for name, value in ROW.items() if name != "throughput"}

    assert step_time(0.013, table(row)).verdict.outcome is Outcome.BELOW_PUBLISHED


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"work": {"precision": "fp16"}}, "precision fp16 there, fp32 here"),
        ({"steps": 60}, "steps 60 there, 12 here"),
        ({"modelled": True}, "modelled"),
        ({"inferred": ("model.num_layers", "loss")}, "does not state model.num_layers, loss"),
        ({"row": {**ROW, "throughput": 9000}}, "throughput 9,000 is stated"),
    ],
)
def test_an_incomparable_published_figure_is_shown_and_does_not_gate(changes, why):
    finding = step_time(0.010, table(**changes))

    assert finding.verdict.outcome is Outcome.NO_BASELINE
    assert finding.published.startswith("published: 10 ms a step")
    gates, _, against = finding.published.partition("; it does not gate: ")
    assert "× that step time (A Report, Table 1, 1x Some GPU)" in gates
    assert why in against


@pytest.mark.parametrize(
    ("published", "outcome"),
    [(1.0, Outcome.MEETS_PUBLISHED), (1.7, Outcome.BELOW_PUBLISHED)],
)
def test_the_bus_bandwidth_of_a_collective_is_compared_with_the_published_one(published, outcome):
    (case,) = make_collectives(collectives=["all_reduce"], sizes=["1MiB"], world_sizes=[4])
    row = {"case": case.id, "world_size": 4, "bus_gb_per_s": published}
    measured = {case.id: make_measurement(case, [0.004] * 5)}  # four calls: 1.573 GB/s
    published_rows = table(row, work={"collective.kind": "all_reduce"})

    (finding,) = judged(measured, make_baseline(published=(published_rows,)))

    assert finding.verdict.outcome is outcome
    assert finding.verdict.ratio == pytest.approx(published / 1.572864)


@pytest.mark.parametrize("step_s", [0.013, 0.009])
def test_disturbed_launches_are_not_judged_by_a_published_figure(step_s):
    busy = with_conditions(make_measurement(ONE, [step_s] * 5), *[RankConditions(foreign=0.4)] * 5)

    found = judged({ONE.id: busy}, make_baseline(published=(table(),)))

    assert {finding.metric: finding.verdict.outcome for finding in found} == {
        "step_time": Outcome.INVALID,
        "tail": Outcome.NO_BASELINE,
        "cpu_time": Outcome.NO_BASELINE,
        "peak_memory": Outcome.NO_BASELINE,
        "structure": Outcome.NO_BASELINE,
        "loss": Outcome.NO_BASELINE,
    }
    assert "5 of 5 launches were disturbed" in found[0].verdict.reason
    assert "PUBLISHED" in found[0].verdict.reason


def test_the_measured_baseline_decides_and_the_published_figure_is_shown():
    sessions = [
        make_session([0.013 * f for f in (1, 1.001, 0.999)], day=day) for day in range(1, 7)
    ]

    finding = step_time(0.013, table(), cases={ONE.id: make_case_baseline(ONE, *sessions)})

    assert finding.verdict.outcome is Outcome.PASS
    assert finding.published == (
        "published: 10 ms a step, 6,400 samples/s; measured: 1.300 × that step time"
        " (A Report, Table 1, 1x Some GPU)"
    )


@pytest.mark.parametrize("stated", [{"efficiency": 0.8}, {"speedup": 1.6}])
@pytest.mark.parametrize(
    ("two_s", "outcome", "ratio"),
    [(0.0125, Outcome.MEETS_PUBLISHED, 1.0), (0.0140, Outcome.BELOW_PUBLISHED, 1.12)],
)
def test_a_published_efficiency_gates_without_a_published_step_time(stated, two_s, outcome, ratio):
    """80 % on two GPUs means that a step takes 1.25 times as long as on one."""
    verdict = efficiency(0.010, two_s, row=stated).verdict

    assert verdict.outcome is outcome
    assert verdict.ratio == pytest.approx(ratio)
    assert "scaling cost" in verdict.reason


def test_each_published_metric_gates_and_an_unpublished_one_is_not_a_pass():
    row = {"case": TWO.id, "world_size": 2, "batch_size": 64, "step_ms": 12.5, "efficiency": 0.8}

    found = findings([(ONE, 0.010), (TWO, 0.0125)], table(row))

    assert {metric: f.verdict.outcome for (case, metric), f in found.items() if case == TWO.id} == {
        "step_time": Outcome.MEETS_PUBLISHED,
        "efficiency": Outcome.MEETS_PUBLISHED,
        "tail": Outcome.NO_BASELINE,
        "cpu_time": Outcome.NO_BASELINE,
        "peak_memory": Outcome.NO_BASELINE,
        "structure": Outcome.NO_BASELINE,
        "loss": Outcome.NO_BASELINE,
    }


def test_efficiency_is_not_below_published_if_only_the_single_rank_is_faster():
    row = {"step_ms": 12.5, "efficiency": 0.8}

    verdict = efficiency(0.005, 0.0120, row=row).verdict

    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert "the one-rank step got faster" in verdict.reason


def test_weak_scaling_is_not_compared_with_a_published_efficiency_of_strong_scaling():
    finding = efficiency(0.010, 0.0140, row={"efficiency": 0.8}, scaling="strong")

    assert finding.verdict.outcome is Outcome.NO_BASELINE
    assert finding.published is None


@pytest.mark.parametrize(
    ("scaling", "outcome", "ratio"),
    [
        ("strong", Outcome.BELOW_PUBLISHED, pytest.approx(1.6 / 1.25)),
        ("weak", Outcome.NO_BASELINE, None),
    ],
)
def test_strong_scaling_is_compared_with_published_strong_scaling(scaling, outcome, ratio):
    one, two = make_cases(batch_sizes={"global": [64]}, steps=12, warmup=2)
    row = {"case": two.id, "world_size": 2, "batch_size": 32, "speedup": 1.6}

    found = findings([(one, 0.010), (two, 0.008)], table(row, scaling=scaling))

    assert found[two.id, "efficiency"].verdict.outcome is outcome
    assert found[two.id, "efficiency"].verdict.ratio == ratio


@given(one_s=st.floats(0.001, 1), share=st.floats(0.1, 1), published=st.floats(0.1, 1))
def test_the_ratio_of_efficiencies_is_the_ratio_of_scaling_costs(one_s, share, published):
    """A speedup of N × efficiency states the same as the efficiency."""
    by_efficiency = efficiency(one_s, one_s / share, row={"efficiency": published}).verdict
    by_speedup = efficiency(one_s, one_s / share, row={"speedup": 2 * published}).verdict

    assert by_efficiency.ratio == pytest.approx(published / share)
    assert by_speedup.ratio == pytest.approx(by_efficiency.ratio)


def test_a_row_without_a_case_is_shown_beside_its_workload_on_as_many_gpus():
    row = {"world_size": 1, "batch_size": 32, "throughput": 6400}
    beside = step_time(0.010, table(row)).published

    assert beside.startswith("published: 6,400 samples/s; measured: 1.000 × that step time")
    assert "it does not gate: batch 32 there, 64 here; its row names no case" in beside
    assert step_time(0.010, table({**row, "world_size": 2})).published is None
    assert step_time(0.010, table({**row, "strategy": "ddp"})).published is None
    assert step_time(0.010, table(row, work={"workload": "gpt"})).published is None
    assert step_time(0.010, table(row, work={})).published is None


def test_the_published_row_nearest_to_the_case_is_shown():
    far = table({"world_size": 1, "batch_size": 32, "step_ms": 5}, work={"workload": "mlp"})

    assert "published: 10 ms a step" in step_time(0.010, far, table(inferred=("loss",))).published


def test_a_case_stored_only_for_another_accelerator_is_incomparable():
    verdict = step_time(0.010, elsewhere={ONE.id: "v100-sxm2-16gb"}).verdict

    assert verdict.outcome is Outcome.INCOMPARABLE
    assert "the baseline is of v100-sxm2-16gb, this is cpu-some-2c-host" in verdict.reason


def test_only_published_figures_that_can_gate_count_for_another_accelerator():
    stated, inferred = table(), table(inferred=("loss",))

    assert known_cases(make_baseline(published=(stated,))) == {ONE.id}
    assert known_cases(make_baseline(published=(inferred, table(modelled=True)))) == set()
    assert known_cases(make_baseline({TWO.id: make_case_baseline(TWO)})) == {TWO.id}


def test_a_published_table_of_an_older_file_is_read_and_its_date_is_checked():
    old = {n: v for n, v in msgspec.to_builtins(table()).items() if n not in ("date", "inferred")}

    assert msgspec.convert(old, PublishedTable) == table()
    for date in ("2025-01-15", "2020", "undated"):
        assert msgspec.convert({**old, "date": date}, PublishedTable).date == date
    with pytest.raises(msgspec.ValidationError, match="date"):
        msgspec.convert({**old, "date": "January 15, 2025"}, PublishedTable)


def test_other_rows_of_a_published_table_are_not_compared():
    other = table({**ROW, "case": "another"})

    finding = step_time(0.010, other)

    assert finding.verdict.outcome is Outcome.NO_BASELINE
    assert finding.published is None


def test_a_published_table_needs_a_row():
    with pytest.raises(msgspec.ValidationError, match="length"):
        msgspec.convert({**msgspec.to_builtins(table()), "rows": []}, PublishedTable)
