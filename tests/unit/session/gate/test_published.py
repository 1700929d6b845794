"""A published figure is a target on its GPU; one that is in doubt is shown and asserts nothing."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddp_perf.core.launch import RankConditions
from ddp_perf.core.published import PublishedRow, PublishedTable
from ddp_perf.core.target import Target
from ddp_perf.core.verdict import Outcome
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
    with_conditions,
)

ONE, TWO = make_cases(batch_sizes=[64], steps=12, warmup=2)
ROW = {"case": ONE.id, "world_size": 1, "batch_size": 64, "step_ms": 10.0, "throughput": 6400}
MEETS, MISSES = Outcome.MEETS_TARGET, Outcome.MISSES_TARGET


def table(row=ROW, **changes):
    fields = {
        "name": "t",
        "document": "A Report",
        "where": "Table 1",
        "hardware": "1x Some GPU",
        "work": {"workload": "mlp", "precision": "fp32"},
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


def of_one(step_s, *tables, metric="target:throughput", cases=None, **context):
    """Return the finding on one rank, or None; each step takes ``step_s``."""
    return findings([(ONE, step_s)], *tables, cases=cases, **context).get((ONE.id, metric))


def beside(*tables, metric="step_time"):
    """Return what is shown beside the metric of one rank."""
    return of_one(0.010, *tables, metric=metric).published


def of_two(one_s, two_s, row, *, figure="efficiency", cases=(ONE, TWO), **changes):
    """Return the finding on a target of two ranks, or None, with a table that states ``row``."""
    one, two = cases
    published = table({"case": two.id, "world_size": 2, "batch_size": 64, **row}, **changes)
    found = findings([(one, one_s), (two, two_s)], published)
    return found.get((two.id, f"target:{figure}"))


@pytest.mark.parametrize(
    ("changes", "allowed"),
    [
        ({}, 0.05),
        ({"inferred": ("model.num_layers", "loss")}, 0.15),
        ({"inferred": ("loss",), "tolerance": 0.05}, 0.15),
        ({"tolerance": 0.3}, 0.3),
    ],
)
def test_a_published_figure_is_a_target_less_its_shortfall(changes, allowed):
    published = table(**changes)
    at_the_bound = 64 / (6400 * (1 - allowed))

    assert of_one(at_the_bound * 0.999, published).verdict.outcome is MEETS
    assert of_one(at_the_bound * 1.001, published).verdict.outcome is MISSES
    assert of_one(0.009, published).verdict.outcome is MEETS


def test_the_verdict_names_the_figure_its_document_and_what_was_inferred():
    verdict = of_one(0.013, table(inferred=("model.num_layers", "loss"))).verdict

    assert verdict.outcome is MISSES
    assert verdict.reason == (
        "at least 6,400 samples/s was published for this GPU (A Report, Table 1, which does not"
        " state model.num_layers, loss; 15% less is allowed); measured 4,923 samples/s (interval"
        " 4,923 to 4,923, 5 launches)"
    )


def test_a_published_step_time_is_an_upper_bound():
    row = {name: value for name, value in ROW.items() if name != "throughput"}

    found = of_one(0.013, table(row), metric="target:step_time")

    assert found.verdict.outcome is MISSES
    assert "at most 10 ms step time was published" in found.reason
    assert "5% more is allowed" in found.reason
    assert of_one(0.0105, table(row), metric="target:step_time").verdict.outcome is MEETS


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"work": {"precision": "fp16"}}, "precision fp16 there, fp32 here"),
        ({"modelled": True}, "its authors modelled it"),
        ({"row": {**ROW, "throughput": 9000}}, "throughput 9,000 is stated"),
        ({"row": {**ROW, "batch_size": None, "case": None}}, "its row names no case"),
    ],
)
def test_a_figure_in_doubt_is_shown_and_asserts_nothing(changes, why):
    published = table(**changes)

    assert of_one(0.010, published) is None
    shown, _, against = beside(published).partition("; it asserts nothing: ")
    assert shown.startswith("published: ")
    assert shown.endswith(" samples/s (A Report, Table 1, 1x Some GPU)")
    assert why in against


def test_a_contradicted_figure_leaves_the_others_of_its_row():
    """Document 002 states 87.5 % in one place, and 89 % follows from its throughputs."""
    two = {"case": TWO.id, "batch_size": 64, "throughput": 11_360, "efficiency": 0.8}
    published = msgspec.structs.replace(
        table(), rows=(PublishedRow(**ROW), PublishedRow(world_size=2, **two))
    )

    found = findings([(ONE, 0.010), (TWO, 0.0113)], published)

    assert found[TWO.id, "target:throughput"].verdict.outcome is MEETS
    assert (TWO.id, "target:efficiency") not in found
    assert "efficiency 0.8 is stated" in found[TWO.id, "efficiency"].published


@pytest.mark.parametrize(("published", "outcome"), [(1.0, MEETS), (1.7, MISSES)])
def test_the_bus_bandwidth_of_a_collective_is_a_target(published, outcome):
    (case,) = make_collectives(collectives=["all_reduce"], sizes=["1MiB"], world_sizes=[4])
    row = {"case": case.id, "world_size": 4, "bus_gb_per_s": published}
    measured = {case.id: make_measurement(case, [0.004] * 5)}  # four calls: 1.573 GB/s
    rows = table(row, work={"collective.kind": "all_reduce"})

    found = {one.metric: one for one in judged(measured, make_baseline(published=(rows,)))}

    assert found["target:busbw"].verdict.outcome is outcome
    assert f"at least {published:g} GB/s bus bandwidth" in found["target:busbw"].reason
    assert found["step_time"].verdict.outcome is Outcome.NO_BASELINE


def test_the_speedup_of_one_rank_is_no_target():
    """Tables print it as 1: it is what the other rows are compared with."""
    row = {**ROW, "speedup": 1.0}

    assert of_one(0.010, table(row)).verdict.outcome is MEETS
    assert of_one(0.010, table(row), metric="target:efficiency") is None


def test_disturbed_launches_do_not_miss_a_published_figure():
    busy = with_conditions(make_measurement(ONE, [0.013] * 5), *[RankConditions(foreign=0.4)] * 5)

    found = {one.metric: one for one in judged({ONE.id: busy}, make_baseline(published=(table(),)))}

    assert found["target:throughput"].verdict.outcome is Outcome.INVALID
    assert "5 of 5 launches were disturbed" in found["target:throughput"].reason


def test_a_stored_session_does_not_excuse_a_missed_figure():
    sessions = [
        make_session([0.013 * f for f in (1, 1.001, 0.999)], day=day) for day in range(1, 7)
    ]
    cases = {ONE.id: make_case_baseline(ONE, *sessions)}

    step = of_one(0.013, table(), cases=cases, metric="step_time")

    assert (step.verdict.outcome, step.published) == (Outcome.PASS, None)
    assert of_one(0.013, table(), cases=cases).verdict.outcome is MISSES


def test_a_target_of_the_suite_replaces_the_published_one():
    own = Target(figure="throughput", bound=1000, unit="", file="bench_configs/x.yaml")
    case = msgspec.structs.replace(ONE, targets=(own,))

    (finding,) = [
        one
        for one in judged(
            {case.id: make_measurement(case, [0.013] * 5)}, make_baseline(published=(table(),))
        )
        if one.target is not None
    ]

    assert (finding.target, finding.verdict.outcome) == (own, MEETS)


@pytest.mark.parametrize("stated", [{"efficiency": 0.8}, {"speedup": 1.6}])
@pytest.mark.parametrize(("two_s", "outcome"), [(0.0130, MEETS), (0.0140, MISSES)])
def test_a_published_efficiency_is_a_target(stated, two_s, outcome):
    """80 % on two GPUs means that a step takes 1.25 times as long as on one; 5 % less: 1.316."""
    found = of_two(0.010, two_s, {**stated, "throughput": 10_240})

    assert found.verdict.outcome is outcome
    assert "at least 80 % efficiency was published" in found.reason


def test_an_efficiency_is_not_missed_if_only_one_rank_alone_is_faster():
    row = {"throughput": 10_240, "efficiency": 0.8}

    found = of_two(0.005, 0.0120, row)

    assert found.verdict.outcome is MEETS
    assert "one rank alone is faster than published" in found.reason
    assert of_two(0.010, 0.0150, row).verdict.outcome is MISSES


def test_an_efficiency_asserts_nothing_where_no_one_rank_case_is_measured():
    (alone,) = make_cases(batch_sizes=[64], world_sizes=[2], steps=12, warmup=2)
    row = {"case": alone.id, "world_size": 2, "batch_size": 64, "efficiency": 0.8}

    found = findings([(alone, 0.010)], table(row))

    assert alone.single is None
    assert (alone.id, "target:efficiency") not in found


@pytest.mark.parametrize(("scaling", "asserts"), [("strong", True), ("weak", False)])
def test_strong_scaling_is_compared_with_published_strong_scaling_alone(scaling, asserts):
    cases = make_cases(batch_sizes={"global": [64]}, steps=12, warmup=2)
    row = {"speedup": 1.6, "throughput": 8_000}

    found = of_two(0.010, 0.008, {**row, "batch_size": 32}, cases=cases, scaling=scaling)

    assert (found is not None) is asserts
    assert (of_two(0.010, 0.0140, row, scaling=scaling) is None) is asserts


@pytest.mark.parametrize("changes", [{}, {"throughput": 10_240, "step_ms": 20.0}])
def test_an_efficiency_asserts_nothing_without_a_sure_throughput_of_all_ranks(changes):
    """A rank alone that became faster would be red."""
    row = {"case": TWO.id, "world_size": 2, "batch_size": 64, "efficiency": 0.8, **changes}

    found = findings([(ONE, 0.005), (TWO, 0.0120)], table(row))

    assert (TWO.id, "target:efficiency") not in found
    assert "a faster rank alone looks like worse" in found[TWO.id, "efficiency"].published


@given(one_s=st.floats(0.001, 1), share=st.floats(0.1, 1), published=st.floats(0.1, 1))
def test_a_speedup_of_n_times_the_efficiency_states_the_same(one_s, share, published):
    of_all = {"throughput": 1.0}
    by_efficiency = of_two(one_s, one_s / share, {"efficiency": published, **of_all})
    by_speedup = of_two(one_s, one_s / share, {"speedup": 2 * published, **of_all})

    assert by_speedup.target.bound == pytest.approx(by_efficiency.target.bound)
    assert by_speedup.value == by_efficiency.value == pytest.approx(share)


def test_a_row_without_a_case_is_shown_beside_its_workload_on_as_many_gpus():
    row = {"world_size": 1, "batch_size": 32, "throughput": 6400}
    line = beside(table(row))

    assert line.startswith("published: 6,400 samples/s")
    assert "it asserts nothing: batch 32 there, 64 here; its row names no case" in line
    assert beside(table({**row, "world_size": 2})) is None
    assert beside(table({**row, "strategy": "ddp"})) is None
    assert beside(table(row, work={"workload": "gpt"})) is None
    assert beside(table(row, work={})) is None


def test_the_published_figure_nearest_to_the_case_is_shown():
    far = {"world_size": 1, "batch_size": 32, "throughput": 5}
    near = table({**ROW, "case": None})

    assert "published: 6,400 samples/s" in beside(table(far, work={"workload": "mlp"}), near)


def test_a_case_stored_only_for_another_accelerator_is_incomparable():
    verdict = of_one(0.010, metric="step_time", elsewhere={ONE.id: "v100-sxm2-16gb"}).verdict

    assert verdict.outcome is Outcome.INCOMPARABLE
    assert "the baseline is of v100-sxm2-16gb, this is cpu-some-2c-host" in verdict.reason


def test_a_published_table_without_a_date_is_read_and_a_date_is_checked():
    undated = {n: v for n, v in msgspec.to_builtins(table()).items() if n != "date"}

    assert msgspec.convert(undated, PublishedTable) == table()
    for date in ("2025-01-15", "2020", "undated"):
        assert msgspec.convert({**undated, "date": date}, PublishedTable).date == date
    with pytest.raises(msgspec.ValidationError, match="date"):
        msgspec.convert({**undated, "date": "January 15, 2025"}, PublishedTable)


def test_other_rows_of_a_published_table_are_not_compared():
    other = table({**ROW, "case": "another"})

    assert of_one(0.010, other) is None
    assert beside(other) is None


def test_a_published_table_needs_a_row():
    with pytest.raises(msgspec.ValidationError, match="length"):
        msgspec.convert({**msgspec.to_builtins(table()), "rows": []}, PublishedTable)
