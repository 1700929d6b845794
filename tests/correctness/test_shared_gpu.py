"""Two ranks on one GPU over gloo: DDP's CUDA code on a machine on which NCCL cannot run.

Gloo accepts CUDA tensors in every collective that is used here. It copies them through the host's
memory (torch/csrc/distributed/c10d/ProcessGroupGloo.cpp and ProcessGroupGlooCuda.cpp). So buckets,
hooks, streams, events and DDP's own figures are those of any GPU, but the speed is not.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from ddp_perf.baselines.work import WorkStore
from ddp_perf.config.loading import Overrides, load_cases
from ddp_perf.core.launch import LaunchResult
from ddp_perf.session.gate.exact import compare_structure
from ddp_perf.system.gpu.gpus import find_gpus
from tests.correctness.training import (
    HOOK_ROUNDINGS,
    STEPS,
    TOLERANCES,
    UNIT_ROUNDOFF,
    assert_equals_reference,
    assert_ranks_have_the_same_bits,
    launch,
    make_training_case,
    reference,
    train,
)

ROOT = Path(__file__).parents[2]
MANY = {"bucket_cap_mb": 0.001}

pytestmark = pytest.mark.gpu

EXACT = [
    pytest.param({"ddp": MANY}, id="ddp"),
    pytest.param({"ddp": {**MANY, "static_graph": True}}, id="static_graph"),
    pytest.param({"ddp": {**MANY, "gradient_as_bucket_view": True}}, id="bucket_view"),
    pytest.param({"ddp": {**MANY, "find_unused_parameters": True}}, id="unused_parameters"),
    pytest.param({"ddp": MANY, "comm_hooks": [{"kind": "topk", "ratio": 1.0}]}, id="topk"),
    pytest.param({"comm_hooks": [{"kind": "hierarchical", "group_size": 2}]}, id="hierarchical"),
    pytest.param({"strategy": "fsdp"}, id="fsdp"),
]
LOSSY = [
    pytest.param({"comm_hooks": [{"kind": "fp16"}]}, id="fp16"),
    pytest.param({"comm_hooks": [{"kind": "topk", "ratio": 0.1}]}, id="topk_0.1"),
    pytest.param({"comm_hooks": [{"kind": "powersgd", "rank": 2}]}, id="powersgd"),
]


@pytest.fixture(scope="module", autouse=True)
def _a_gpu():
    if not find_gpus().gpus:
        pytest.skip("needs 1 CUDA device, found 0")


@pytest.fixture
def trained(launcher, tmp_path):
    """``trained("gpu", dtype="float32", ddp=…)``: two ranks of that tier, on one GPU."""

    def run(tier="gpu", *, dtype="float64", **suite):
        directory = tmp_path / tier
        directory.mkdir()
        model = {"path": str(directory), "model": "Transformer", "steps": STEPS, "dtype": dtype}
        case = make_training_case("recorded:build", 2, model, tier=tier, **suite)
        return train(launcher, case, directory, shared_gpu=tier == "gpu")

    return run


@pytest.fixture
def launched(launcher):
    """``launched(case)``: the result of a launch of two ranks on one GPU."""

    def run(case):
        outcome = launch(launcher, case, shared_gpu=True)
        assert isinstance(outcome, LaunchResult), f"{outcome}\n{getattr(outcome, 'traceback', '')}"
        return outcome

    return run


@pytest.mark.parametrize("fields", EXACT)
def test_ranks_on_one_gpu_equal_one_process_on_the_whole_batch(trained, fields):
    shared = trained(**fields)

    assert [rank.placement.device for rank in shared.result.ranks] == ["cuda:0", "cuda:0"]
    assert all("cuda" in rank.devices for rank in shared.ranks)
    assert_equals_reference(shared, reference("Transformer"), TOLERANCES["float64"])


def test_micro_steps_without_synchronisation_equal_the_large_batch(trained):
    shared = trained(gradient_accumulation=3, ddp=MANY)

    expected = reference("Transformer", micro_steps=3)
    assert_equals_reference(shared, expected, TOLERANCES["float64"])


def test_the_fp16_hook_is_within_rounding(trained):
    shared = trained(dtype="float32", comm_hooks=[{"kind": "fp16"}])

    roundings = HOOK_ROUNDINGS * UNIT_ROUNDOFF["fp16"]
    assert_equals_reference(shared, reference("Transformer"), roundings)


@pytest.mark.parametrize("fields", LOSSY)
def test_a_lossy_hook_leaves_all_ranks_with_the_same_bits(trained, fields):
    assert_ranks_have_the_same_bits(trained(dtype="float32", **fields))


@pytest.mark.parametrize("fields", [*EXACT, *LOSSY])
def test_a_step_has_the_same_collectives_as_on_cpus(trained, fields):
    shared, on_cpus = trained(dtype="float32", **fields), trained("cpu", dtype="float32", **fields)

    assert shared.collectives == on_cpus.collectives
    assert shared.structure.buckets == on_cpus.structure.buckets


@pytest.mark.parametrize("name", ["mlp_scaling", "comm_optimizations"])
def test_the_shipped_structures_are_those_of_the_suite(launched, name):
    overrides = Overrides(world_sizes=(2,), batch_sizes=(8,), steps=8)
    stored = WorkStore(ROOT / "baselines").structures(name)

    for case in load_cases([ROOT / "bench_configs" / f"{name}.yaml"], overrides):
        outcome = launched(case)

        same_step = next(s for s in stored.values() if _step(s.options) == _step(case.work()))
        verdict = compare_structure([outcome], same_step.step.structure)
        assert verdict.outcome == "PASS", (case.id, verdict.reason)


def test_every_step_is_timed_by_events_and_its_communication_is_seen(launched, record_property):
    overrides = Overrides(world_sizes=(2,), batch_sizes=(256,), steps=23)
    (case,) = load_cases([ROOT / "bench_configs" / "mlp_scaling.yaml"], overrides)

    ranks = launched(case).ranks

    for rank in ranks:
        assert len(rank.step_s) == 18
        assert min(rank.step_s) > 0
        # By DDP's own events. Gloo copies a bucket of 100 MB to the host and back.
        assert float(rank.ddp_logging["avg_backward_comm_time"]) > 0
        assert min(rank.probe.communication) > 0
        assert min(rank.probe.phases.exposed) >= 0
        assert min(rank.probe.phases.backward) >= 0  # exposed communication is already subtracted
    record_property("exposed_ms", f"{1e3 * max(ranks[0].probe.phases.exposed):.1f}")


def _step(work):
    """Return the work of a DDP step, which depends neither on batch size nor on ranks."""
    return {key: value for key, value in work.items() if key != "batch_size"}
