"""Predictions of complete curves: held-out points, contradictions, degenerate curves, cost."""

from __future__ import annotations

import math

import msgspec
import pytest

from ddp_perf.scaling.curves import ScalingCurve
from ddp_perf.scaling.fit import StepTerms, parse_change
from ddp_perf.scaling.laws import Exchange, ScalingPoint, ddp_shape, in_buckets, unknown_shape
from ddp_perf.scaling.prediction import PredictRequest, predict_all
from ddp_perf.stats.link import Link, Topology, flat

BYTES = 100_687_872.0
ONE_BUCKET = ddp_shape([Exchange(kind="all_reduce", payload=BYTES)])
STEPS = {1: 0.1, 2: 0.11, 4: 0.116, 8: 0.12}


def make_series(steps=STEPS, *, shape=ONE_BUCKET, batch_size=32, **changes):
    fields = {
        "label": f"ddp, batch {batch_size}",
        "where": "t",
        "source": "published",
        "work": StepTerms(shape=shape, strategy="ddp", batch_size=batch_size),
        "samples": batch_size,
        "points": tuple(ScalingPoint(world_size=n, step_s=step) for n, step in steps.items()),
    }
    return ScalingCurve(**{**fields, **changes})


def make_request(**changes):
    fields = {"world_sizes": (16, 256), "topology": flat(Link(latency_s=1.0, bytes_per_s=1.0))}
    return PredictRequest(**{**fields, **changes})


def predicted(series=None, **request):
    (prediction,) = predict_all([series or make_series()], make_request(**request))
    return prediction


def step_of(prediction, ranks):
    return next(step for step in prediction.steps if step.world_size == ranks)


def test_prediction_has_every_known_and_requested_size():
    prediction = predicted()

    assert [step.world_size for step in prediction.steps] == [1, 2, 4, 8, 16, 256]
    step = step_of(prediction, 16)
    assert step.throughput.value == pytest.approx(16 * 32 / step.step_s.value)
    assert step.throughput.low == pytest.approx(16 * 32 / step.step_s.high)
    assert sum(step.parts.values()) == pytest.approx(step.step_s.value, rel=0.02)


STRONG = make_series(
    {1: 0.1, 2: 0.055, 4: 0.033, 8: 0.024},
    shape=unknown_shape("ddp"),
    strong=True,
    work=StepTerms(shape=unknown_shape("ddp"), strategy="ddp", global_batch=32),
)


def test_prediction_of_strong_scaling_keeps_the_global_batch():
    prediction = predicted(STRONG)

    step = step_of(prediction, 16)
    assert step.throughput.value == pytest.approx(32 / step.step_s.value)
    assert step.step_s.value < 0.024
    speedup = step_of(prediction, 8).efficiency.value * 8
    assert speedup == pytest.approx(0.1 / 0.024, rel=0.1)
    assert 0 <= prediction.fixed_compute.low < prediction.fixed_compute.high < 0.24
    assert any("cannot distinguish" in note for note in prediction.notes)
    assert predicted().fixed_compute is None


@pytest.mark.slow
def test_the_reach_of_the_checked_curves_is_stated():
    def notes(ranks):
        return " ".join(predicted(STRONG, world_sizes=(ranks,)).notes)

    assert "beyond 16 ranks the bands hold only if the compute" in notes(32)
    assert "straight line" not in notes(16)


def test_limit_of_strong_scaling_is_the_best_number_of_ranks():
    """A ring's latency grows: far more ranks are slower again, and the limit is between."""
    prediction = predicted(STRONG, world_sizes=(8, 64, 2**20))

    limit = prediction.speedup_limit["ring"]
    assert limit.value > step_of(prediction, 8).efficiency.value * 8
    assert step_of(prediction, 2**20).step_s.value > step_of(prediction, 8).step_s.value


@pytest.mark.slow
def test_amdahls_serial_fraction_of_strong_scaling_is_that_of_the_compute():
    exact = {n: 0.1 * (0.2 + 0.8 / n) for n in (1, 2, 4, 8, 16)}
    series = msgspec.structs.replace(
        STRONG, points=tuple(ScalingPoint(world_size=n, step_s=s) for n, s in exact.items())
    )

    (check,) = predicted(series).cross_checks

    assert check.parameters["serial fraction"].value == pytest.approx(0.2, rel=0.02)
    assert check.limit.value == pytest.approx(5, rel=0.02)


@pytest.mark.slow
def test_more_than_ideal_strong_scaling_is_reported():
    series = msgspec.structs.replace(
        STRONG, points=tuple(ScalingPoint(world_size=n, step_s=0.1 / n / n) for n in (1, 2, 4))
    )

    assert any("less time than the ideal" in note for note in predicted(series).notes)
    assert not any("less time" in note for note in predicted(STRONG).notes)


@pytest.mark.slow
def test_strong_curves_of_one_link_are_not_called_contradictory():
    """What hides depends on compute that is not known."""
    other = msgspec.structs.replace(
        STRONG, points=tuple(ScalingPoint(world_size=n, step_s=1.0) for n in (1, 2))
    )

    assert [one.refusal for one in predict_all([STRONG, other], make_request())] == [None, None]


def test_points_that_are_not_fitted_are_held_out():
    prediction = predicted(fit_world_sizes=(1, 2, 4))

    assert prediction.fitted == (1, 2, 4)
    held_out, fitted, asked = (step_of(prediction, n) for n in (8, 4, 16))
    assert held_out.held_out_error == pytest.approx(held_out.step_s.value / 0.12 - 1)
    assert (fitted.held_out_error, asked.held_out_error) == (None, None)


def test_document_000_is_refused_with_its_contradiction():
    small = make_series({1: 0.0076, 2: 0.0414}, batch_size=256)
    large = make_series({1: 0.09977, 2: 0.11424}, batch_size=4096)

    one, other = predict_all([small, large], make_request())

    assert one.refusal == other.refusal
    assert one.steps == other.steps == ()
    for part in (
        "2 ranks exchange the same 100.7 MB at any batch, and none of it can hide",
        "33.8 ± 0.5 ms are added at ddp, batch 256 (3.0 GB/s",
        "14.5 ± 2.1 ms are added at ddp, batch 4096 (7.0 GB/s",
        "No fixed link explains both",
    ):
        assert part in one.refusal


@pytest.mark.parametrize(
    "shape",
    [
        pytest.param(unknown_shape("ddp"), id="buckets unknown"),
        pytest.param(ddp_shape(in_buckets(BYTES, BYTES / 4)), id="four buckets"),
    ],
)
def test_curves_do_not_contradict_if_a_backward_can_hide_the_difference(shape):
    small = make_series({1: 0.0076, 2: 0.0414}, batch_size=256, shape=shape)
    large = make_series({1: 0.09977, 2: 0.11424}, batch_size=4096, shape=shape)

    assert [p.refusal for p in predict_all([small, large], make_request())] == [None, None]


def test_curves_of_different_tables_do_not_contradict():
    small = make_series({1: 0.0076, 2: 0.0414}, batch_size=256)
    large = make_series({1: 0.09977, 2: 0.11424}, batch_size=4096, where="another")

    assert [p.refusal for p in predict_all([small, large], make_request())] == [None, None]


@pytest.mark.parametrize(
    ("steps", "reason"),
    [
        pytest.param({}, "needs two world sizes", id="no point"),
        pytest.param({4: 0.1}, "the data have only 4 ranks", id="one point"),
        pytest.param({1: 0.1, 2: math.nan}, "is nan", id="NaN"),
    ],
)
def test_curve_that_cannot_be_fitted_is_refused_with_the_reason(steps, reason):
    prediction = predicted(make_series(steps))

    assert reason in prediction.refusal
    assert prediction.steps == ()


def test_efficiency_over_one_is_noted():
    prediction = predicted(make_series({1: 0.1, 2: 0.09, 4: 0.1}))

    assert "2 ranks take 10.0% less time than 1 rank: an efficiency over 1" in prediction.notes[0]
    assert step_of(prediction, 16).step_s.value > 0


def test_bad_fit_is_noted():
    prediction = predicted(make_series({1: 0.1, 2: 0.2, 4: 0.1, 8: 0.2}))

    assert any("it does not fit" in note for note in prediction.notes)
    assert not any("does not fit" in note for note in predicted().notes)


def test_missing_single_rank_step_is_noted():
    prediction = predicted(make_series({2: 0.11, 4: 0.116, 8: 0.12}))

    assert any("compute is extrapolated" in note for note in prediction.notes)


def test_points_within_a_node_leave_the_link_between_nodes_as_given():
    near = Link(latency_s=1e-6, bytes_per_s=100e9)
    far = Link(latency_s=1e-5, bytes_per_s=10e9)
    topology = Topology(gpus_per_node=8, intra=near, inter=far)

    slower, flat_ = predicted(topology=topology), predicted()

    assert any("no fitted point spans several nodes" in note for note in slower.notes)
    assert step_of(slower, 256).step_s.high > step_of(flat_, 256).step_s.high
    assert set(slower.algorithms) == {"ring", "tree", "hierarchical"}


def test_link_has_a_bandwidth_only_if_the_bytes_are_known():
    steps = {n: 0.1 + 2 * (n - 1) / n * BYTES / 10e9 for n in (1, 2, 4, 8)}  # 10 GB/s

    link = predicted(make_series(steps)).link

    assert link.bytes_per_s.contains(10e9)
    assert predicted(make_series(steps, shape=unknown_shape("ddp"))).link.bytes_per_s is None


def test_speedup_has_a_limit_with_a_ring_and_none_with_a_tree():
    steps = {n: 0.1 + 0.002 * (n - 1) for n in (1, 2, 4, 8)}

    limits = predicted(make_series(steps)).speedup_limit

    assert limits["ring"].contains(50)
    assert limits["tree"].value == math.inf


def test_amdahls_law_is_reported_with_its_fraction_and_its_limit():
    steps = {n: 0.1 * (1 + 0.02 * (n - 1)) for n in (1, 2, 4, 8)}

    (amdahl,) = predicted(make_series(steps)).cross_checks

    assert amdahl.law == "Amdahl"
    assert amdahl.parameters["serial fraction"].contains(0.02)
    assert amdahl.limit.contains(50)
    assert amdahl.step_s[16].contains(0.13)


def test_requested_changes_are_predicted_or_have_a_reason():
    changes = (parse_change("fp16"), parse_change("bucket:25"))

    known = predicted(changes=changes)
    unknown = predicted(make_series(shape=unknown_shape("ddp")), changes=changes)

    assert [gain.world_size for gain in known.gains["fp16"]] == [16, 256]
    assert set(known.gains) == {"fp16", "bucket:25"}
    assert unknown.not_gained == {"bucket:25": "the size of the gradients is not stated"}


def test_price_gives_costs_and_the_best_size():
    prediction = predicted(price_per_gpu_hour=3, samples=1e8, deadline_h=20, world_sizes=(16,))

    one = step_of(prediction, 1)
    assert one.cost.per_million == pytest.approx(3 / 3600 / one.throughput.value * 1e6)
    assert one.cost.efficiency == pytest.approx(1)
    assert prediction.best.hours <= 20
    slow_h = 1e8 / step_of(prediction, prediction.best.world_size).throughput.low / 3600
    assert prediction.best.hours == pytest.approx(slow_h)


@pytest.mark.slow
def test_price_of_the_data_is_the_default():
    series = msgspec.structs.replace(make_series(), price_per_gpu_hour=2.0, epoch_samples=10**6)

    cost = step_of(predicted(series), 8).cost

    assert cost.per_epoch == pytest.approx(cost.per_million)
    assert step_of(predicted(), 8).cost is None
    assert predicted(series).best is None  # no training was asked for


def test_samples_of_a_training_are_not_tokens():
    """With 512 tokens a sample the token throughput is 512 times as large, the hours are equal."""
    samples = make_series()
    tokens = msgspec.structs.replace(samples, samples=32 * 512, unit="tokens", per_sample=512)

    as_samples, as_tokens = (
        predicted(series, samples=1e6, price_per_gpu_hour=1.0).best for series in (samples, tokens)
    )

    assert as_tokens.hours == pytest.approx(as_samples.hours)


def test_beyond_the_fitted_ranks_the_link_is_a_condition_of_the_bands():
    said = "beyond 8 ranks the bands hold only if all ranks have the link of the fitted ones"

    assert any(said in note for note in predicted().notes)
    assert not any(said in note for note in predicted(world_sizes=(3, 8)).notes)


@pytest.mark.parametrize(("sessions", "is_noted"), [(1, True), (2, False), (None, False)])
def test_points_of_one_session_are_noted(sessions, is_noted):
    notes = predicted(make_series(sessions=sessions)).notes

    assert any("how sessions differ is not in the bands" in note for note in notes) == is_noted
