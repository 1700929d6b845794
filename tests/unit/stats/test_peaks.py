"""Peaks are those that have a source, and no others."""

from __future__ import annotations

import pytest

from ddp_perf.stats.hardware import common_peak, largest_peak, memory_bandwidth, peak_flops


@pytest.mark.parametrize(
    ("accelerator", "precision", "tflops"),
    [
        ("h200", "bf16", 989.0),
        ("h200", "tf32", 494.5),
        ("a100-pcie-40gb-nvlink", "fp16", 312.0),
        ("a100-sxm4-80gb", "fp32", 19.5),
        ("v100-pcie-16gb", "fp32", 14.0),
        ("v100-sxm2-16gb", "fp32", 15.7),
        ("t4", "fp16", 65.0),
        ("l4", "fp16", 121.0),
        ("a10", "fp32", 31.2),
        ("l40s", "fp32", 91.6),
    ],
)
def test_peak_flops_is_the_dense_peak_of_the_gpu_and_precision(accelerator, precision, tflops):
    assert peak_flops(accelerator, precision) == tflops * 1e12


@pytest.mark.parametrize(
    ("accelerator", "precision"),
    [
        ("geforce-rtx-4090", "fp16"),
        ("t4", "bf16"),
        ("v100-sxm2-16gb", "tf32"),
        ("a100-sxm4-40gb-mig-3g-20gb", "bf16"),
        ("h200-nvl", "bf16"),
        ("h200+t4", "fp32"),
        ("h200", "int8"),
    ],
)
def test_peak_flops_is_none_for_any_other_gpu_or_precision(accelerator, precision):
    assert peak_flops(accelerator, precision) is None


@pytest.mark.parametrize(
    ("accelerator", "tflops"), [("h200", 1979.0), ("a100-sxm4-80gb", 312.0), ("t4", 65.0)]
)
def test_the_largest_peak_is_that_of_the_fastest_format(accelerator, tflops):
    assert largest_peak(accelerator) == tflops * 1e12
    assert largest_peak("geforce-rtx-4090") is None


def test_operations_in_two_formats_have_the_rate_of_both_one_after_the_other():
    mixed = common_peak("a100-sxm4-80gb", {"bf16": 312 * 10**9, "fp32": 195 * 10**8})

    assert mixed == pytest.approx((312 + 19.5) * 1e9 / 2e-3)


def test_tf32_that_is_allowed_on_a_gpu_without_it_is_fp32():
    assert common_peak("t4", {"tf32": 10}) == pytest.approx(8.1e12)
    assert common_peak("a100-sxm4-40gb", {"tf32": 10}) == pytest.approx(156e12)


@pytest.mark.parametrize(
    ("accelerator", "formats"),
    [("h200", {}), ("h200", {"bf16": 9, "float64": 1}), ("geforce-rtx-4090", {"bf16": 9})],
)
def test_no_peak_is_guessed_for_a_part_of_the_operations(accelerator, formats):
    assert common_peak(accelerator, formats) is None


@pytest.mark.parametrize(
    ("accelerator", "gigabytes"),
    [("t4", 320), ("v100-pcie-16gb", 900), ("a100-sxm4-80gb", 2039), ("h200", 4800), ("l4", 300)],
)
def test_the_bandwidth_of_the_memory_is_that_of_the_data_sheet(accelerator, gigabytes):
    assert memory_bandwidth(accelerator) == gigabytes * 1e9


@pytest.mark.parametrize("accelerator", ["geforce-rtx-4090", "a100-sxm4-40gb-mig-3g-20gb", "epyc"])
def test_another_gpu_and_a_processor_have_no_bandwidth(accelerator):
    assert memory_bandwidth(accelerator) is None
