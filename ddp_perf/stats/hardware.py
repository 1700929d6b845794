"""The peaks of accelerators: dense FLOP/s by precision, and the bandwidth of their memory."""

from __future__ import annotations

from collections.abc import Mapping

# Dense peaks, TFLOP/s, by the name of the baseline file: only GPUs whose figure has a source.
# V100 and T4: MosaicML composer, callbacks/speed_monitor.py. A100, H100 and H200: Stas Bekman,
# Machine Learning Engineering, "Accelerators". A10, L4 and L40S: NVIDIA's data sheets. No peak is
# guessed: another model, a MIG slice or an unsupported precision has none.
_V100_PCIE = {"fp32": 14.0, "fp16": 112.0}
_V100_SXM2 = {"fp32": 15.7, "fp16": 125.0}
_A100 = {"fp32": 19.5, "tf32": 156.0, "fp16": 312.0, "bf16": 312.0}
_H100_SXM = {"fp32": 67.0, "tf32": 494.5, "fp16": 989.0, "bf16": 989.0, "fp8": 1979.0}
_PEAK_TFLOPS = {
    "v100-pcie-16gb": _V100_PCIE,
    "v100-pcie-32gb": _V100_PCIE,
    "v100-sxm2-16gb": _V100_SXM2,
    "v100-sxm2-32gb": _V100_SXM2,
    "t4": {"fp32": 8.1, "fp16": 65.0},
    "a10": {"fp32": 31.2, "tf32": 62.5, "fp16": 125.0, "bf16": 125.0},
    "l4": {"fp32": 30.3, "tf32": 60.0, "fp16": 121.0, "bf16": 121.0, "fp8": 242.5},
    "l40s": {"fp32": 91.6, "tf32": 183.0, "fp16": 362.0, "bf16": 362.0, "fp8": 733.0},
    "a100-pcie-40gb": _A100,
    "a100-80gb-pcie": _A100,
    "a100-sxm4-40gb": _A100,
    "a100-sxm4-80gb": _A100,
    "h100-pcie": {"fp32": 51.0, "tf32": 378.0, "fp16": 756.0, "bf16": 756.0, "fp8": 1513.0},
    "h100-80gb-hbm3": _H100_SXM,
    "h200": _H100_SXM,
}
# GB/s of the GPU's own memory, from the same two tables and NVIDIA's data sheets.
_MEMORY = {
    "v100-pcie-16gb": 900.0,
    "v100-pcie-32gb": 900.0,
    "v100-sxm2-16gb": 900.0,
    "v100-sxm2-32gb": 900.0,
    "t4": 320.0,
    "a10": 600.0,
    "l4": 300.0,
    "l40s": 864.0,
    "a100-pcie-40gb": 1555.0,
    "a100-80gb-pcie": 1940.0,
    "a100-sxm4-40gb": 1555.0,
    "a100-sxm4-80gb": 2039.0,
    "h100-pcie": 2000.0,
    "h100-80gb-hbm3": 3350.0,
    "h200": 4800.0,
}


def peak_flops(accelerator: str, precision: str) -> float | None:
    """Return the dense peak of one GPU in FLOP/s, or None if it is unknown.

    ``accelerator`` is the name of its baseline file.
    """
    tflops = _peaks(accelerator).get(precision)
    return None if tflops is None else tflops * 1e12


def largest_peak(accelerator: str) -> float | None:
    """Return the dense peak of a GPU in its fastest format, or None if it is unknown."""
    return max(_peaks(accelerator).values(), default=0.0) * 1e12 or None


def common_peak(accelerator: str, flops_by_format: Mapping[str, int]) -> float | None:
    """Return the rate in FLOP/s of operations in several formats, each at its dense peak.

    None: the peak of one of them is unknown. A GPU without TF32 computes in FP32 where TF32 is
    allowed.
    """
    peaks = _peaks(accelerator)
    peaks = {"tf32": peaks["fp32"], **peaks} if peaks else {}
    if not flops_by_format or not peaks.keys() >= flops_by_format.keys():
        return None
    least_s = sum(flops / peaks[name] for name, flops in flops_by_format.items())
    return sum(flops_by_format.values()) / least_s * 1e12


def _peaks(accelerator: str) -> dict[str, float]:
    return _PEAK_TFLOPS.get(accelerator.removesuffix("-nvlink"), {})


def memory_bandwidth(accelerator: str) -> float | None:
    """Return the peak of one GPU's memory in bytes/s, or None if it is unknown.

    ``accelerator`` is the name of its baseline file.
    """
    gigabytes = _MEMORY.get(accelerator.removesuffix("-nvlink"))
    return None if gigabytes is None else gigabytes * 1e9
