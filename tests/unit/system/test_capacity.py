"""The obstacles of a machine, with the needed and the found numbers."""

from __future__ import annotations

import msgspec
import pytest

from ddp_perf.core.gpu import GpuMachine
from ddp_perf.errors import GpuError
from ddp_perf.system.capacity import find_capacity, tier_of
from tests.builders import make_capacity, make_case, make_gpu_machine


@pytest.mark.parametrize(
    ("tier", "world_size", "gpus", "cores", "obstacle"),
    [
        ("gpu", 2, 0, 8, "needs 2 CUDA devices, found 0"),
        ("gpu", 1, 0, 8, "needs 1 CUDA device, found 0"),
        ("gpu", 8, 4, 64, "needs 8 CUDA devices, found 4"),
        ("gpu", 2, 2, 1, None),
        ("cpu", 2, 0, 1, "needs 2 cores, 1 per rank, found 1"),
        ("cpu", 2, 0, 2, None),
        ("cpu", 8, 8, 2, "needs 8 cores, 1 per rank, found 2"),
    ],
)
def test_an_obstacle_states_what_is_needed_and_what_was_found(
    tier, world_size, gpus, cores, obstacle
):
    capacity = make_capacity(make_gpu_machine(*["NVIDIA H200"] * gpus), cores)

    assert capacity.obstacle(make_case(tier=tier, world_size=world_size)) == obstacle


@pytest.mark.parametrize(
    ("tier", "nodes", "gpus", "obstacle"),
    [
        (
            "gpu",
            1,
            8,
            "needs 2 nodes with 8 CUDA devices on each, found 1 node with 8:"
            " nnodes of --ddp-cluster",
        ),
        (
            "gpu",
            2,
            4,
            "needs 2 nodes with 8 CUDA devices on each, found 2 nodes with 4: nproc_per_node of"
            " --ddp-cluster",
        ),
        (
            "cpu",
            2,
            0,
            "needs 2 nodes with 8 cores on each, 1 per rank, found 2 nodes with 4:"
            " nproc_per_node of --ddp-cluster",
        ),
        ("gpu", 2, 8, None),
        ("gpu", 4, 8, None),
    ],
)
def test_each_node_needs_the_devices_of_its_own_ranks(tier, nodes, gpus, obstacle):
    machine = make_gpu_machine(*["NVIDIA H200"] * gpus)
    capacity = msgspec.structs.replace(make_capacity(machine, cores=4), nodes=nodes)

    assert capacity.obstacle(make_case(tier=tier, world_size=16, nodes=2)) == obstacle


@pytest.mark.parametrize(
    ("precision", "capability", "obstacle"),
    [
        ("bf16", (7, 0), "bf16 needs compute capability 8.0, found 7.0 (Some GPU)"),
        ("tf32", (7, 5), "tf32 needs compute capability 8.0, found 7.5 (Some GPU)"),
        ("bf16", (8, 0), None),
        ("fp16", (7, 0), None),
        ("fp32", (7, 0), None),
    ],
)
def test_a_precision_that_the_gpu_lacks_is_an_obstacle(precision, capability, obstacle):
    machine = make_gpu_machine("Some GPU", "Some GPU", compute_capability=capability)
    case = make_case(tier="gpu", precision=precision)

    assert make_capacity(machine, cores=8).obstacle(case) == obstacle


def test_bf16_on_the_cpu_tier_is_no_obstacle_with_any_gpu():
    machine = make_gpu_machine("Some GPU", compute_capability=(7, 0))

    assert make_capacity(machine, cores=2).obstacle(make_case(precision="bf16")) is None


def test_the_gpu_tier_is_described_by_its_gpus():
    machine = make_gpu_machine("Tesla T4", "Tesla T4")
    capacity = make_capacity(machine, cores=16)

    assert capacity.accelerator_key("gpu") == "t4"
    assert capacity.accelerator_name("gpu") == "Tesla T4"
    assert capacity.accelerator_count("gpu") == 2


def test_the_cpu_tier_is_described_by_its_processor_with_any_gpus():
    capacity = make_capacity(make_gpu_machine("Tesla T4"), cores=16)

    assert capacity.accelerator_key("cpu").startswith("cpu-")
    assert capacity.accelerator_count("cpu") == 16


def test_the_capacity_of_this_machine_can_be_read():
    capacity = find_capacity()

    assert capacity.cores >= 1
    assert capacity.obstacle(make_case(tier="cpu", world_size=1)) is None


def test_a_missing_package_is_an_obstacle_with_the_command_to_install_it(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    capacity = make_capacity()

    assert capacity.obstacle(make_case(workload="resnet50")) == (
        "resnet50 needs transformers: pip install transformers"
    )
    assert capacity.obstacle(make_case(workload="mlp")) is None


@pytest.mark.parametrize(("gpus", "tier"), [(0, "cpu"), (1, "gpu")])
def test_the_tier_is_that_of_the_gpus_if_there_are_any(gpus, tier):
    assert tier_of(make_gpu_machine(*["NVIDIA H200"] * gpus), meant="--tier cpu") == tier


def test_gpus_that_cannot_be_read_are_no_reason_for_the_cpu_tier():
    with pytest.raises(GpuError, match=r"NVML: Unknown Error.* or state --tier cpu if"):
        tier_of(GpuMachine(gpus=(), problem="Unknown Error"), meant="--tier cpu")
