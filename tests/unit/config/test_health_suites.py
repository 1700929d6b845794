"""The floors of the health suites follow from arithmetic and from the tables of data sheets."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddp_perf.config.loading import Overrides, find_suites, load_cases
from ddp_perf.core.target import targets_on
from ddp_perf.stats.hardware import memory_bandwidth, peak_flops
from ddp_perf.stats.plausibility import link_peak
from ddp_perf.system.gpu.gpus import accelerator_slug
from tests.builders import make_gpu_machine

HEALTH = Path(__file__).parents[3] / "bench_configs" / "health"
SHARE = 0.4  # of the bandwidth: what the file states
# The names that NVML gives, with the NVLinks between two of them.
NAMES = [
    ("Tesla V100-PCIE-16GB", 0),
    ("Tesla V100-PCIE-32GB", 0),
    ("Tesla V100-SXM2-16GB", 1),
    ("Tesla V100-SXM2-32GB", 1),
    ("Tesla T4", 0),
    ("NVIDIA A10", 0),
    ("NVIDIA L4", 0),
    ("NVIDIA L40S", 0),
    ("NVIDIA A100-PCIE-40GB", 0),
    ("NVIDIA A100-PCIE-40GB", 12),
    ("NVIDIA A100 80GB PCIe", 0),
    ("NVIDIA A100 80GB PCIe", 12),
    ("NVIDIA A100-SXM4-40GB", 12),
    ("NVIDIA A100-SXM4-80GB", 12),
    ("NVIDIA H100 PCIe", 0),
    ("NVIDIA H100 PCIe", 12),
    ("NVIDIA H100 80GB HBM3", 18),
    ("NVIDIA H200", 18),
]
KEYS = [accelerator_slug(make_gpu_machine(name, name, nvlinks=links)) for name, links in NAMES]
# The most that 16 lanes carry in one direction, GB/s, of a card that has NVLink too.
PCIE = {"v100": 15.75, "a100": 31.5, "h100": 63.0, "h200": 63.0}
FOUR_LANES = 3.94e9  # of PCIe 3.0


def cases(name, **overrides):
    return load_cases([HEALTH / f"{name}.yaml"], Overrides(**overrides))


def floor(case, key):
    (target,) = targets_on(key, case.targets).values()
    return target.bound


@pytest.mark.parametrize("path", find_suites(HEALTH), ids=lambda path: path.stem)
def test_each_suite_has_a_floor_for_the_same_gpus_as_nvml_names_them(path):
    for case in load_cases([path], Overrides()):
        named = [key for target in case.targets for key in target.accelerators]
        assert sorted(named) == sorted(KEYS)
        assert case.schedule.launches == 3


def test_one_gpu_and_all_of_them_are_four_cases_of_three_launches():
    every = load_cases(find_suites(HEALTH), Overrides())

    for count in (2, 4, 8):
        assert len([case for case in every if case.world_size in (1, count)]) == 4


@pytest.mark.parametrize("key", KEYS)
def test_a_bound_of_the_memory_is_its_bytes_at_a_share_of_the_bandwidth(key):
    """The weights are read twice, the gradients written, and SGD moves three times as much."""
    (case,) = cases("memory")
    model = case.training.model
    of_layer, layers = 4 * model["hidden_dim"] ** 2, model["num_layers"]
    forward, backward, gradients = layers * of_layer, (layers - 1) * of_layer, layers * of_layer
    moved = forward + backward + gradients + 3 * layers * of_layer
    least_s = moved / (SHARE * memory_bandwidth(key))

    assert model["input_dim"] == model["hidden_dim"] == model["output_dim"]
    assert least_s <= floor(case, key) <= 1.01 * least_s  # rounded up to a tenth of a ms


def test_the_memory_of_a_t4_is_enough():
    (case,) = cases("memory")

    model = case.training.model
    assert 2 * 4 * model["num_layers"] * model["hidden_dim"] ** 2 < 12 * 2**30


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("name", ["compute", "every_gpu"])
def test_the_peak_of_a_floor_is_known(name, key):
    case = cases(name)[0]

    assert peak_flops(key, case.precision) is not None
    assert 0.2 <= floor(case, key) <= 0.6


@pytest.mark.parametrize(
    ("name", "tflop", "products"), [("compute", 8.8, 8), ("every_gpu", 3.0, 11)]
)
def test_the_products_of_a_step_are_those_that_the_file_states(name, tflop, products):
    """Forward and two for the gradients, without that of the first layer's input."""
    case = cases(name)[0]
    model = case.training.model
    assert products == 3 * model["num_layers"] - 1
    flops = products * 2 * case.batch_size * model["hidden_dim"] ** 2

    assert flops / 1e12 == pytest.approx(tflop, rel=0.01)


@pytest.mark.parametrize("key", KEYS)
def test_a_floor_of_nvlink_is_above_pcie_and_one_of_pcie_rules_out_four_lanes(key):
    nvlink = "sxm" in key or "nvlink" in key or key in ("h100-80gb-hbm3", "h200")
    for case in cases("link"):
        bound = floor(case, key)
        if nvlink:
            assert bound > 1e9 * PCIE[key[:4]]
        elif key == "t4":  # eight lanes are usual
            assert bound < FOUR_LANES
        else:
            # Of four lanes the headers of packets take a tenth, at the least.
            assert 0.88 * FOUR_LANES < bound < 0.3 * link_peak(key, "SYS")


def test_a_mig_slice_and_an_unknown_card_have_no_floor():
    for case in load_cases(find_suites(HEALTH), Overrides()):
        for key in ("a100-sxm4-40gb-mig-3g-20gb", "geforce-rtx-4090", "h200+t4"):
            assert targets_on(key, case.targets) == {}
