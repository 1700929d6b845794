"""The MFU uses the dense peaks that have a source, and no others."""

from __future__ import annotations

import pytest

from ddp_perf.stats.mfu import mfu, peak_flops


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


def test_mfu_is_one_half_at_half_of_the_peak():
    assert mfu(10**12, 0.004, 500e12) == pytest.approx(0.5)
