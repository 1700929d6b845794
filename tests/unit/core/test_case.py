"""A case's fingerprint contains its work, not the way in which it is measured."""

from __future__ import annotations

import msgspec
import pytest

from ddp_perf.core.case import Case, Tolerances
from ddp_perf.core.strategy import (
    Bf16Hook,
    DdpOptions,
    Fp16Hook,
    FsdpOptions,
    PostLocalSgdHook,
    TopKHook,
)
from ddp_perf.core.subject import DataOptions
from tests.builders import make_case, make_cases, make_collectives, make_failure


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"tier": "gpu"}, id="tier"),
        pytest.param({"workload": "mine:build"}, id="workload"),
        pytest.param({"model": {"hidden_dim": 33}}, id="model"),
        pytest.param({"strategy": "none", "ddp": None}, id="strategy"),
        pytest.param({"ddp": DdpOptions(bucket_cap_mb=1)}, id="ddp option"),
        pytest.param({"strategy": "fsdp", "ddp": None, "fsdp": FsdpOptions()}, id="fsdp"),
        pytest.param({"comm_hook": TopKHook()}, id="hook"),
        pytest.param({"precision": "bf16"}, id="precision"),
        pytest.param({"gradient_accumulation": 2}, id="accumulation"),
        pytest.param({"activation_checkpointing": True}, id="checkpointing"),
        pytest.param({"compile": True}, id="compile"),
        pytest.param({"cuda_graphs": True}, id="CUDA graphs"),
        pytest.param({"cudnn_benchmark": True}, id="cuDNN's search"),
        pytest.param({"world_size": 4}, id="world size"),
        pytest.param({"batch_size": 65}, id="batch size"),
        pytest.param({"global_batch": 128}, id="global batch"),
        pytest.param({"data": DataOptions(num_workers=0)}, id="loader"),
        pytest.param({"data": DataOptions(source="files")}, id="real data"),
        pytest.param({"env": {"NCCL_ALGO": "Ring"}}, id="environment"),
    ],
)
def test_an_option_that_changes_the_step_changes_the_fingerprint(change):
    assert make_case(**change).work() != make_case().work()


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"steps": 99}, id="steps"),
        pytest.param({"warmup": 1}, id="warm-up"),
        pytest.param({"launches": 9}, id="launches"),
        pytest.param({"step_deadline_s": 1}, id="deadline"),
        pytest.param({"tolerances": {"step_time": 0.5}}, id="tolerance"),
        pytest.param({"suite": "other"}, id="name of the suite"),
        pytest.param({"description": "reworded"}, id="description"),
        pytest.param({"price_per_gpu_hour": 3, "epoch_samples": 9}, id="price"),
    ],
)
def test_the_fingerprint_does_not_depend_on_the_schedule(change):
    changed, case = make_cases(**change)[1], make_cases()[1]

    assert changed.work() == case.work()
    assert changed.id == case.id


def test_the_fingerprint_is_flat_with_dotted_names():
    work = make_case(env={"A": "1"}).work()

    assert work["world_size"] == 2
    assert work["model.hidden_dim"] == 32
    assert work["ddp.bucket_cap_mb"] == 25
    assert work["env.A"] == "1"


def test_the_fingerprint_has_no_unused_options():
    """Figures that are older than the option stay comparable."""
    assert make_case().work().keys() == {
        *("tier", "workload", "strategy", "precision", "world_size", "batch_size"),
        *(f"model.{name}" for name in ("input_dim", "hidden_dim", "output_dim", "num_layers")),
        *(f"ddp.{name}" for name in DdpOptions.__struct_fields__),
    }


def test_the_fingerprint_contains_each_argument_of_a_hook():
    work = make_case(comm_hook=TopKHook(ratio=0.5)).work()

    assert work["comm_hook.kind"] == "topk"
    assert work["comm_hook.ratio"] == 0.5


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Fp16Hook(), Bf16Hook()),
        (TopKHook(), TopKHook(ratio=0.5)),
        (PostLocalSgdHook(group_size=2), PostLocalSgdHook(group_size=2, period=8)),
    ],
)
def test_the_fingerprint_differs_by_kind_and_argument_of_a_hook(one, other):
    assert make_case(comm_hook=one).work() != make_case(comm_hook=other).work()


def test_the_fingerprint_is_the_same_after_json():
    work = make_case(model={"rate": 0.1, "deep": True, "kind": "a"}).work()

    assert msgspec.json.decode(msgspec.json.encode(work)) == work


def test_samples_are_counted_over_all_ranks():
    assert make_case(world_size=4, batch_size=8).samples_per_step == 32
    assert make_case(world_size=4, batch_size=8, gradient_accumulation=3).samples_per_step == 96


def test_a_case_is_the_same_after_json():
    model = {"hidden_dim": 3, "dropout": 0.25, "kind": "wide"}
    case = make_case(model=model, comm_hook=TopKHook(ratio=0.5))

    assert msgspec.json.decode(msgspec.json.encode(case), type=Case) == case


def test_a_metric_without_tolerance_is_not_gated():
    assert Tolerances(tail=None).of("tail") is None
    assert Tolerances(step_time=0.02).of("step_time") == 0.02


def test_the_text_of_a_failure_has_case_launch_rank_and_cause():
    failure = make_failure(make_case(), 2, rank=1, detail="killed by SIGKILL")

    assert str(failure) == "mlp-ddp-fp32-ws2-b64: launch 3: rank 1: killed by SIGKILL"


def test_the_text_of_a_failure_without_a_rank_names_none():
    assert ": launch: " in str(make_failure(make_case(), rank=None))


def test_the_fingerprint_of_a_collective_has_nothing_of_training():
    (case,) = make_collectives(collectives=["broadcast"], sizes=["64KiB"], env={"A": "1"})

    assert case.work() == {
        "tier": "cpu",
        "world_size": 2,
        "collective.kind": "broadcast",
        "collective.payload": 65536,
        "collective.calls": 20,
        "env.A": "1",
    }
    assert case.samples_per_step == 20
    assert not case.trains
