"""The modelled step of a plan is exact if the curve is that of a known step and link."""

from __future__ import annotations

import msgspec
import pytest

from ddp_perf.scaling.advice.choice import HALF_SPEEDUP, Goal, Plan, StepModel
from ddp_perf.scaling.advice.facts import MeasuredStep
from ddp_perf.scaling.curves import ScalingCurve
from ddp_perf.scaling.fit import StepTerms
from ddp_perf.scaling.laws import Exchange, ScalingPoint, ddp_shape, unknown_shape
from ddp_perf.stats.link import Link, flat

PARAMETERS = 25_000_000
COMPUTE_S = 0.1  # of 32 samples
BYTE_S = 1e-10  # 10 GB/s
FLAT = flat(Link(latency_s=1.0, bytes_per_s=1.0))
PLAN = Plan(sharding="ddp", precision="fp32", batch_size=32)
WITH_FSDP = msgspec.structs.replace(PLAN, sharding="zero3")


def exchange_s(payload, ranks):
    return 2 * (ranks - 1) / ranks * payload * BYTE_S


def make_step(*, known=True, **changes):
    """Return the step of one bucket, of which nothing is hidden, on 1 to 8 ranks."""
    payload = 4.0 * PARAMETERS
    bucket = ddp_shape([Exchange(kind="all_reduce", payload=payload)])
    points = {n: COMPUTE_S + (exchange_s(payload, n) if n > 1 else 0) for n in (1, 2, 4, 8)}
    curve = ScalingCurve(
        label="c",
        where="w",
        source="measured",
        work=StepTerms(
            shape=bucket if known else unknown_shape("ddp"), strategy="ddp", batch_size=32
        ),
        samples=32,
        points=tuple(ScalingPoint(world_size=n, step_s=step) for n, step in points.items()),
    )
    # One bucket of all gradients: the formula's buckets are then the measured one.
    work = {"ddp.bucket_cap_mb": 100_000.0}
    return MeasuredStep(**{"curve": curve, "work": work, "parameters": PARAMETERS, **changes})


def make_model(step=None, **goal):
    fields = {"parameters": PARAMETERS, "gpus": 8, "gpu_memory": 80e9}
    return StepModel(step or make_step(), Goal(**{**fields, **goal}), FLAT)


def test_the_measured_plan_has_the_measured_step():
    time = make_model().time(PLAN)

    step_s = COMPUTE_S + exchange_s(4 * PARAMETERS, 8)
    assert time.step_s.value == pytest.approx(step_s, rel=0.01)
    assert time.efficiency.value == pytest.approx(COMPUTE_S / step_s, rel=0.01)
    assert time.samples_per_s.value == pytest.approx(8 * 32 / step_s, rel=0.01)


@pytest.mark.parametrize("known", [True, False])
def test_compute_and_bytes_grow_with_the_parameters(known):
    time = make_model(make_step(known=known), parameters=10 * PARAMETERS).time(PLAN)

    step_s = 10 * COMPUTE_S + exchange_s(40 * PARAMETERS, 8)
    assert time.step_s.value == pytest.approx(step_s, rel=0.01)


@pytest.mark.parametrize(
    ("changes", "compute", "transfer"),
    [
        pytest.param({"batch_size": 64}, 2, 1, id="twice the batch"),
        pytest.param({"micro_steps": 4}, 4, 1, id="accumulation"),
        pytest.param({"hook": "bf16"}, 1, 0.5, id="hook"),
        pytest.param({"checkpointing": True}, 4 / 3, 1, id="checkpointing"),
        pytest.param({"precision": "bf16"}, 1 / HALF_SPEEDUP, 1, id="half: FP32 gradients"),
    ],
)
@pytest.mark.parametrize("known", [True, False])
def test_a_change_has_its_own_part(changes, compute, transfer, known):
    model = make_model(make_step(known=known))
    plan = msgspec.structs.replace(PLAN, **changes)

    step_s = compute * COMPUTE_S + transfer * exchange_s(4 * PARAMETERS, 8)

    assert model.time(plan).step_s.value == pytest.approx(step_s, rel=0.01)
    plain_s = COMPUTE_S + exchange_s(4 * PARAMETERS, 8)
    gain = plan.samples / 32 * plain_s / step_s
    assert model.gain(plan, PLAN).value == pytest.approx(gain, rel=0.01)


@pytest.mark.parametrize(
    ("changes", "transfer"),
    [
        # In all-reduces: one is a gather and a reduce-scatter of the same bytes.
        pytest.param({"sharding": "zero2"}, 1.0, id="ZeRO-2"),
        pytest.param({"sharding": "zero3"}, 1.5, id="ZeRO-3 gathers twice"),
        pytest.param({"sharding": "zero3", "precision": "bf16"}, 1.0, id="gathers in half"),
        pytest.param({"sharding": "zero2", "micro_steps": 4}, 2.5, id="each micro-step gathers"),
    ],
)
def test_fsdp_without_overlap_costs_its_collectives(changes, transfer):
    plan = msgspec.structs.replace(PLAN, **changes)
    compute = plan.micro_steps / (HALF_SPEEDUP if plan.half else 1)

    step_s = make_model(make_step(known=False)).time(plan).step_s.value

    exchanged = transfer * exchange_s(4 * PARAMETERS, 8)
    assert step_s == pytest.approx(compute * COMPUTE_S + exchanged, rel=0.01)


def test_half_precision_that_was_measured_makes_fp32_slower():
    step = make_step(work={"precision": "bf16", "ddp.bucket_cap_mb": 100_000.0})
    model = make_model(step, gpus=1)

    half, full = (
        model.time(msgspec.structs.replace(PLAN, precision=precision)).step_s.value
        for precision in ("bf16", "fp32")
    )

    assert half == pytest.approx(COMPUTE_S, rel=0.01)
    assert full == pytest.approx(COMPUTE_S * HALF_SPEEDUP, rel=0.01)


def test_what_was_checkpointed_is_faster_without():
    step = make_step(work={"activation_checkpointing": True, "ddp.bucket_cap_mb": 100_000.0})

    compute_s = make_model(step, gpus=1).time(PLAN).step_s.value

    assert compute_s == pytest.approx(COMPUTE_S * 3 / 4, rel=0.01)


def test_a_curve_of_one_point_cannot_be_fitted():
    step = make_step()
    single = msgspec.structs.replace(step.curve, points=step.curve.points[:1])

    with pytest.raises(ValueError, match="two world sizes"):
        make_model(msgspec.structs.replace(step, curve=single))
