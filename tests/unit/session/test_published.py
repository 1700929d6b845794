"""Published figures: shown beside a case, gated only where nothing was measured."""

from __future__ import annotations

import msgspec
import pytest

from ddp_perf.core.published import PublishedRow, PublishedTable
from ddp_perf.core.verdict import Outcome
from ddp_perf.session.gate import Bar, judge_suite
from ddp_perf.session.summaries import summaries_of
from tests.builders import (
    make_baseline,
    make_case_baseline,
    make_cases,
    make_collectives,
    make_environment,
    make_measurement,
    make_session,
)

ONE, _ = make_cases(batch_sizes=[64], steps=12, warmup=2)
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


def step_time(step_s, *tables, cases=None, **bar):
    """The finding of the step time, every launch taking ``step_s`` a step."""
    measured = {ONE.id: make_measurement(ONE, [step_s] * 5)}
    bar = Bar(
        baseline=make_baseline(cases, published=tables),
        baseline_path="baselines/x.json",
        environment=make_environment(),
        alpha=0.001,
        **bar,
    )
    found = judge_suite(measured, summaries_of(measured), bar)
    return next(finding for finding in found if finding.metric == "step_time")


@pytest.mark.parametrize(
    ("step_s", "outcome"),
    [
        (0.009, Outcome.MEETS_PUBLISHED),
        (0.0104, Outcome.MEETS_PUBLISHED),
        (0.013, Outcome.BELOW_PUBLISHED),
    ],
)
def test_a_figure_is_met_or_not_at_its_tolerance(step_s, outcome):
    verdict = step_time(step_s, table()).verdict

    assert verdict.outcome is outcome
    assert verdict.ratio == pytest.approx(step_s / 0.010)
    assert verdict.interval is None
    for words in ("A Report", "Table 1", "1x Some GPU", "--save-baseline"):
        assert words in verdict.reason


def test_a_step_time_alone_is_compared_with_the_mean_step():
    row = {name: value for name, value in ROW.items() if name != "throughput"}

    assert step_time(0.013, table(row)).verdict.outcome is Outcome.BELOW_PUBLISHED


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"work": {"precision": "fp16"}}, "precision fp16 there, fp32 here"),
        ({"steps": 60}, "steps 60 there, 12 here"),
        ({"modelled": True}, "modelled"),
        ({"row": {**ROW, "throughput": 9000}}, "throughput 9,000 is stated"),
    ],
)
def test_what_is_not_comparable_is_shown_and_does_not_gate(changes, why):
    finding = step_time(0.010, table(**changes))

    assert finding.verdict.outcome is Outcome.NO_BASELINE
    assert "not comparable" in finding.published
    assert why in finding.published


@pytest.mark.parametrize(
    ("published", "outcome"),
    [(1.0, Outcome.MEETS_PUBLISHED), (1.7, Outcome.BELOW_PUBLISHED)],
)
def test_the_bus_bandwidth_of_a_collective_is_compared_with_the_published_one(published, outcome):
    (case,) = make_collectives(collectives=["all_reduce"], sizes=["1MiB"], world_sizes=[4])
    row = {"case": case.id, "world_size": 4, "bus_gb_per_s": published}
    measured = {case.id: make_measurement(case, [0.004] * 5)}  # four calls: 1.573 GB/s
    bar = Bar(
        baseline=make_baseline(published=(table(row, work={"collective.kind": "all_reduce"}),)),
        baseline_path="baselines/x.json",
        environment=make_environment(),
        alpha=0.001,
    )

    (finding,) = judge_suite(measured, summaries_of(measured), bar)

    assert finding.verdict.outcome is outcome
    assert finding.verdict.ratio == pytest.approx(published / 1.572864)


def test_what_was_measured_decides_and_the_published_figure_stands_beside_it():
    nights = [make_session([0.013 * f for f in (1, 1.001, 0.999)], day=day) for day in range(1, 7)]

    finding = step_time(0.013, table(), cases={ONE.id: make_case_baseline(ONE, *nights)})

    assert finding.verdict.outcome is Outcome.PASS
    assert finding.published.startswith("published: 1.300 ×")


def test_a_case_that_only_another_accelerator_knows_is_incomparable_and_names_it():
    verdict = step_time(0.010, elsewhere={ONE.id: "v100-sxm2-16gb"}).verdict

    assert verdict.outcome is Outcome.INCOMPARABLE
    assert "the baseline is of v100-sxm2-16gb, this is cpu-some-2c-host" in verdict.reason


def test_other_rows_of_a_table_say_nothing_of_this_case():
    other = table({**ROW, "case": "another"})

    finding = step_time(0.010, other)

    assert finding.verdict.outcome is Outcome.NO_BASELINE
    assert finding.published is None


def test_a_table_needs_a_row():
    with pytest.raises(msgspec.ValidationError, match="length"):
        msgspec.convert({**msgspec.to_builtins(table()), "rows": []}, PublishedTable)
