"""Scaling curves are built from results, baselines and published tables."""

from __future__ import annotations

import msgspec
import pytest

from ddp_perf.core.launch import Collective, RankConditions, Unit
from ddp_perf.core.published import PublishedRow, PublishedTable
from ddp_perf.scaling.curves import measured_series, published_series, stored_series
from ddp_perf.scaling.laws import STRONG_ERROR
from tests.builders import (
    make_baseline,
    make_case_baseline,
    make_cases,
    make_measurement,
    make_result,
    make_scripts,
    make_session,
    make_structure,
    with_conditions,
)


def table(*rows, **changes):
    fields = {"name": "t", "document": "A Report", "where": "w", "hardware": "h"}
    return PublishedTable(**{**fields, **changes}, rows=tuple(PublishedRow(**row) for row in rows))


def sizes(series):
    return [point.world_size for point in series.points]


def test_each_batch_size_has_a_curve_with_its_single_rank_run():
    cases = make_cases(
        world_sizes=[1, 2, 4], batch_sizes=[64, 128], epoch_samples=1000, price_per_gpu_hour=3
    )
    result = make_result([make_measurement(case, [0.01, 0.011, 0.012]) for case in cases])

    small, large = measured_series(result)

    assert (small.label, large.label) == ("mlp-ddp-fp32-b64", "mlp-ddp-fp32-b128")
    assert sizes(small) == sizes(large) == [1, 2, 4]
    assert small.points[0].step_s == 0.011
    assert small.points[0].error > 0
    assert small.sessions == 1
    assert (small.samples, small.unit, small.source) == (64, "samples", "measured")
    assert (small.price_per_gpu_hour, small.epoch_samples) == (3, 1000)
    assert [e.payload for e in small.work.shape.exchanges] == [3232]


def test_a_curve_goes_on_over_several_nodes():
    cases = make_cases(world_sizes=[1, 2, 4, 8], ranks_per_node=4)
    result = make_result([make_measurement(case, [0.01]) for case in cases])

    (curve,) = measured_series(result)

    assert sizes(curve) == [1, 2, 4, 8]
    assert curve.title == "mlp-ddp-fp32-b64, 4 ranks per node"


def test_stored_cases_of_each_layout_are_a_curve_of_their_own():
    cases = [
        *make_cases(world_sizes=[1, 2, 4]),
        make_cases(world_sizes=[1, 4], ranks_per_node=2)[1],
    ]
    stored = {c.id: make_case_baseline(c, make_session([0.01] * 3)) for c in cases}

    on_one, across = stored_series(make_baseline(stored))

    assert (sizes(on_one), sizes(across)) == ([1, 2, 4], [1, 2, 4])
    assert (on_one.title, across.title) == (
        "mlp-ddp-fp32-b64",
        "mlp-ddp-fp32-b64, 2 ranks per node",
    )


def test_cases_that_share_a_batch_are_one_curve():
    cases = make_cases(world_sizes=[1, 2, 4], batch_sizes={"global": [64, 128]})
    result = make_result([make_measurement(case, [0.01]) for case in cases])

    small, large = measured_series(result)

    assert (small.label, large.label) == ("mlp-ddp-fp32-g64", "mlp-ddp-fp32-g128")
    assert sizes(small) == sizes(large) == [1, 2, 4]
    assert small.strong
    assert [small.samples_of(ranks) for ranks in (1, 4)] == [64, 64]
    assert (small.work.batch, small.work.batch_size) == (64, None)
    assert {point.law_error for point in small.points} == {STRONG_ERROR}


def test_stored_cases_that_share_a_batch_are_one_curve():
    cases = make_cases(world_sizes=[1, 2, 4], batch_sizes={"global": [64]})
    stored = {c.id: make_case_baseline(c, make_session([0.01] * 3)) for c in cases}

    (series,) = stored_series(make_baseline(stored))

    assert sizes(series) == [1, 2, 4]
    assert series.strong


def test_published_strong_scaling_is_one_curve():
    rows = [
        {"world_size": n, "batch_size": 32 // n, "throughput": rate}
        for n, rate in ((1, 320), (2, 512), (4, 640))
    ]

    (series,) = published_series(table(*rows, scaling="strong"), {})

    assert series.label == "ddp, global batch 32"
    assert [point.step_s for point in series.points] == pytest.approx([0.1, 0.0625, 0.05])
    assert series.samples_of(4) == 32


def test_epoch_counts_tokens_if_throughput_does():
    cases = make_cases(epoch_samples=1000)
    tokens = Unit(name="tokens", per_sample=512)
    (series,) = measured_series(
        make_result([make_measurement(case, [0.01], unit=tokens) for case in cases])
    )

    assert (series.samples, series.unit, series.per_sample) == (64 * 512, "tokens", 512)
    assert series.epoch_samples == 1000 * 512


def test_each_option_has_its_own_curve():
    cases = make_cases(comm_hooks=[None, {"kind": "fp16"}])
    result = make_result([make_measurement(case, [0.01]) for case in cases])

    plain, hooked = measured_series(result)

    assert (plain.work.has_hook, hooked.work.has_hook) == (False, True)
    assert sizes(plain) == sizes(hooked) == [1, 2]


def test_curve_has_the_wrapped_single_rank_run():
    cases = make_cases(denominator="ddp-1")
    result = make_result([make_measurement(case, [0.01]) for case in cases])

    (series,) = measured_series(result)

    assert sizes(series) == [1, 2]


def test_curve_keeps_the_injected_slow_downs():
    result = make_result(
        [make_measurement(case, [0.01]) for case in make_cases()], injections=("compute:20%",)
    )

    assert measured_series(result)[0].injections == ("compute:20%",)


def test_case_without_a_launch_is_no_point():
    one, two = make_cases()
    result = make_result([make_measurement(one, []), make_measurement(two, [0.01])])

    assert sizes(measured_series(result)[0]) == [2]
    assert measured_series(make_result([make_measurement(one, [0.01])])) == []


def test_disturbed_case_is_left_out_with_its_disturbance():
    busy, quiet = RankConditions(foreign=0.9), RankConditions(foreign=0.0)
    one, two, four = (
        make_measurement(case, [0.01] * 3) for case in make_cases(world_sizes=[1, 2, 4])
    )
    measurements = [
        one,
        with_conditions(two, busy, busy, quiet),
        with_conditions(four, busy, quiet, quiet),
    ]

    (series,) = measured_series(make_result(measurements))

    assert sizes(series) == [1, 4]
    assert series.left_out == (
        f"{two.case.id}: 2 of 3 launches were disturbed, because other processes took 90 % of"
        " the ranks' cores (find them with top)",
    )


def test_stored_curve_has_the_reference_sessions():
    single, double = make_cases()
    sessions = [
        make_session([level, level], day=day) for day, level in enumerate([1, 1, 2, 2, 2, 9], 1)
    ]
    baseline = make_baseline(
        {
            single.id: make_case_baseline(single, make_session([0.5, 0.6, 0.7])),
            double.id: make_case_baseline(double, *sessions),
        }
    )

    (series,) = stored_series(baseline)

    assert sizes(series) == [1, 2]
    assert [point.step_s for point in series.points] == [0.6, 2]
    assert series.samples == 64


def stored(*levels):
    """Return a baseline of one and two ranks with sessions at these levels."""
    sessions = [
        make_session([level, 1.001 * level, 0.999 * level], day=day)
        for day, level in enumerate(levels, 1)
    ]
    return make_baseline({case.id: make_case_baseline(case, *sessions) for case in make_cases()})


def test_the_error_of_a_stored_point_is_how_sessions_differ():
    (single,), (several,) = stored_series(stored(0.01)), stored_series(stored(0.01, 0.0104))

    assert (single.sessions, several.sessions) == (1, 2)
    assert single.points[0].error < 0.002  # of its launches
    assert several.points[0].error == pytest.approx(0.0277, abs=0.0001)


def test_published_figures_are_no_stored_curve():
    _, double = make_cases()
    stored = make_case_baseline(double, source="published", document="A Report")

    assert stored_series(make_baseline({double.id: stored})) == []


def test_collectives_that_are_not_modelled_leave_the_shape_unknown():
    other = make_structure(collectives=(Collective(kind="all_to_all", dtype="float32", bytes=8),))
    result = make_result([make_measurement(c, [0.01], structure=other) for c in make_cases()])

    assert not measured_series(result)[0].work.shape.payload_known


def test_published_curves_are_grouped_by_strategy_and_batch():
    found = published_series(
        table(
            {"world_size": 1, "batch_size": 32, "throughput": 320},
            {"world_size": 2, "batch_size": 32, "throughput": 512},
            {"world_size": 1, "batch_size": 64, "step_ms": 180},
            {"world_size": 2, "batch_size": 64, "step_ms": 200},
            {"world_size": 8, "batch_size": 64, "step_ms": 250, "strategy": "fsdp"},
            unit="images",
        ),
        {},
    )

    assert [series.label for series in found] == [
        "ddp, batch 32",
        "ddp, batch 64",
        "fsdp, batch 64",
    ]
    assert [p.step_s for p in found[0].points] == pytest.approx([0.1, 0.125])
    assert sizes(found[1]) == [1, 2]
    assert sizes(found[2]) == [1, 8]
    assert (found[2].work.strategy, found[2].unit) == ("fsdp", "images")


def test_published_curve_prefers_the_single_rank_row_of_its_strategy():
    rows = [
        {"world_size": 1, "batch_size": 32, "strategy": "none", "step_ms": 97},
        {"world_size": 1, "batch_size": 32, "strategy": "ddp", "step_ms": 100},
        {"world_size": 2, "batch_size": 32, "strategy": "ddp", "step_ms": 103},
    ]

    (series,) = published_series(table(*rows), {})

    assert [point.step_s for point in series.points] == [0.1, 0.103]


def test_contradictory_row_is_left_out_with_the_reason():
    (series,) = published_series(
        table(
            {"world_size": 1, "batch_size": 32, "step_ms": 100},
            {"world_size": 2, "batch_size": 32, "step_ms": 100, "throughput": 100},
        ),
        {},
    )

    assert sizes(series) == [1]
    assert series.left_out == (
        "2 GPUs, batch 32: throughput 100 is stated, 640 follows from batch × GPUs ÷ step time",
    )


def test_rows_without_a_step_time_are_no_curve():
    assert published_series(table({"world_size": 2, "speedup": 1.9, "efficiency": 0.95}), {}) == []


def test_row_that_names_a_case_has_its_buckets():
    rows = [
        {"world_size": 1, "batch_size": 32, "step_ms": 100, "case": "a"},
        {"world_size": 2, "batch_size": 32, "step_ms": 103, "case": "b"},
    ]

    (known,) = published_series(table(*rows), {"b": make_structure()})
    (unknown,) = published_series(table(*rows), {})

    assert known.work.shape.payload == 3232
    assert not unknown.work.shape.payload_known
    assert known == msgspec.structs.replace(unknown, work=known.work)


def test_row_with_an_inferred_model_has_unknown_buckets():
    rows = [
        {"world_size": 1, "batch_size": 32, "step_ms": 100, "case": "a"},
        {"world_size": 2, "batch_size": 32, "step_ms": 103, "case": "b"},
    ]

    (series,) = published_series(
        table(*rows, inferred=("model.num_layers",)), {"b": make_structure()}
    )

    assert not series.work.shape.payload_known


def test_wrong_share_of_communication_keeps_the_step_time():
    (series,) = published_series(
        table(
            {"world_size": 1, "batch_size": 32, "step_ms": 100},
            {"world_size": 2, "batch_size": 32, "step_ms": 110, "communication": 0.5},
        ),
        {},
    )

    assert sizes(series) == [1, 2]
    assert series.left_out == ()


def curves_of_script(**changes):
    cases = make_scripts(world_sizes=[1, 2, 4], **changes)
    return measured_series(make_result([make_measurement(case, [0.01]) for case in cases]))


def test_a_script_that_keeps_the_batch_of_each_rank_has_a_weak_curve():
    (curve,) = curves_of_script(samples_per_step="2 * {world_size} * {batch_size}")

    assert (curve.label, curve.is_script, curve.strong) == ("train-b64", True, False)
    assert sizes(curve) == [1, 2, 4]
    assert curve.samples_of(4) == 4 * curve.work.batch_size == 512


def test_a_script_that_divides_one_batch_has_a_strong_curve():
    (curve,) = curves_of_script(samples_per_step="{batch_size}")

    assert (curve.strong, curve.work.batch, curve.work.batch_size) == (True, 64, None)
    assert [curve.samples_of(ranks) for ranks in (1, 4)] == [64, 64]


def test_a_script_whose_samples_follow_neither_law_has_no_curve():
    (curve,) = curves_of_script(samples_per_step="({world_size} + 1) * {batch_size}")

    assert sizes(curve) == [2]
    assert "train-ws4-b64: a step has 320 samples, not 96 a rank" in " ".join(curve.left_out)


def test_the_collectives_of_a_script_show_its_strategy():
    two = make_scripts()[1]
    calls = [Collective(kind=k, dtype="float32", bytes=8) for k in ("all_gather", "reduce_scatter")]
    sharded = make_structure(buckets=(), collectives=tuple(calls))

    (ddp,) = measured_series(make_result([make_measurement(two, [0.01])]))
    (fsdp,) = measured_series(make_result([make_measurement(two, [0.01], structure=sharded)]))

    assert (ddp.work.strategy, fsdp.work.strategy) == ("ddp", "fsdp")


def test_stored_cases_of_a_script_are_a_curve():
    stored = {c.id: make_case_baseline(c, make_session([0.01] * 3)) for c in make_scripts()}

    (curve,) = stored_series(make_baseline(stored))

    assert (sizes(curve), curve.samples) == ([1, 2], 64)
