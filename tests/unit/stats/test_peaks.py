"""Peaks are those that have a source, and no others."""

from __future__ import annotations

import pytest

from ddp_perf.stats.peaks import memory_bandwidth, peak_flops


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
        ("h200", "fp8"),
    ],
)
def test_peak_flops_is_none_for_any_other_gpu_or_precision(accelerator, precision):
    assert peak_flops(accelerator, precision) is None


@pytest.mark.parametrize(
    ("accelerator", "gigabytes"),
    [("t4", 320), ("v100-pcie-16gb", 900), ("a100-sxm4-80gb", 2039), ("h200", 4800)],
)
def test_the_bandwidth_of_the_memory_is_that_of_the_data_sheet(accelerator, gigabytes):
    assert memory_bandwidth(accelerator) == gigabytes * 1e9


@pytest.mark.parametrize("accelerator", ["geforce-rtx-4090", "a100-sxm4-40gb-mig-3g-20gb", "epyc"])
def test_another_gpu_and_a_processor_have_no_bandwidth(accelerator):
    assert memory_bandwidth(accelerator) is None
