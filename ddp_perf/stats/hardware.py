"""Peaks of GPUs, memory that training needs, and its cost."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec

# The peaks of accelerators: dense FLOP/s by precision, and the bandwidth of their memory.


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


# Model FLOPs utilisation (MFU): the share of a GPU's dense peak that a step uses.


def mfu(flops: int, step_s: float, peak: float) -> float:
    """Return the FLOPs of one rank's step as a share of its GPU's peak (PaLM, appendix B).

    ``peak`` is in FLOP/s. The FLOPs are counted operations: with activation checkpointing they
    contain the recomputed ones too, so the result is then the hardware FLOPs utilisation.
    """
    return flops / (step_s * peak)


# The memory of a rank by formula: model states, and gathered or copied parameters, in bytes.
#
# Rajbhandari et al. 2020 (ZeRO, arXiv:1910.02054, section 3.1) count 16 bytes for each parameter
# with Adam in mixed precision: half parameters and gradients (2 + 2), and an FP32 copy with two
# moments (12). This suite keeps its parameters in FP32 in every precision: parameters and gradients
# (4 + 4), and two moments (8) with Adam. That is 16 bytes as well, and 8 with plain SGD.


Optimizer = Literal["adam", "sgd"]
Sharding = Literal["ddp", "zero2", "zero3", "offload"]
_FULL, _HALF = 4, 2  # bytes of an FP32 number, and of FP16 or BF16
_MOMENTS = {"adam": 2, "sgd": 0}
_GATHERED_UNITS = 2  # of FSDP ZeRO-3: one is prefetched
# Layers of a transformer by its parameters: Brown et al. 2020 (GPT-3, arXiv:2005.14165), table 2.1.
_LAYERS = (
    (125e6, 12),
    (350e6, 24),
    (1.3e9, 24),
    (2.7e9, 32),
    (6.7e9, 32),
    (13e9, 40),
    (175e9, 96),
)


class RankMemory(msgspec.Struct, frozen=True, kw_only=True):
    """The memory of a rank on its GPU, and in the host's memory."""

    states: float  # parameters, gradients and moments: always there
    copies: float  # gathered or copied parameters and gradients, beside the activations
    update: float  # temporary lists of the optimizer's step, which has no activations beside it
    host: float = 0.0
    build: float  # the whole model, which this suite builds on each rank before it is sharded
    activations: float | None = None  # None: not known

    @property
    def at_peak(self) -> dict[str, float]:
        """The parts of the largest sum at one time, without activations that are not known."""
        backward = {"copies of parameters": self.copies, "activations": self.activations or 0.0}
        update = {"lists of the optimizer's step": self.update}
        largest = max(backward, update, key=lambda parts: sum(parts.values()))
        parts = {"states": self.states, **largest}
        return {name: size for name, size in parts.items() if size}

    @property
    def peak(self) -> float:
        """The largest sum at one time, without the activations if they are not known."""
        return sum(self.at_peak.values())


def layers_of(parameters: float) -> int:
    """Return the layers of the transformer of GPT-3's family that is nearest in size."""
    return min(_LAYERS, key=lambda row: abs(math.log(row[0] / parameters)))[1]


def rank_memory(
    parameters: float,
    ranks: int,
    sharding: Sharding,
    *,
    optimizer: Optimizer = "adam",
    half: bool = False,
    activations: float | None = None,
) -> RankMemory:
    """Return the memory of a rank.

    DDP keeps all states on each rank, with `gradient_as_bucket_view`; without it the buckets are a
    second copy of the gradients. FSDP2 keeps 1/N of them. With ZeRO-2 all parameters stay
    gathered from the forward to the backward, with ZeRO-3 those of two layers; either has the
    gradients of one layer. In half precision, autocast keeps half copies of the weights until their
    backward, and FSDP2 gathers in half, but reduces gradients in FP32.
    """
    states = parameters * (2 + _MOMENTS[optimizer]) * _FULL
    built = parameters * _FULL
    gathered = parameters * (_HALF if half else _FULL)
    # torch.optim, "Algorithms": foreach uses about the size of the parameters more at its peak.
    update = parameters * _FULL if optimizer == "adam" else 0.0
    if sharding == "ddp":
        copies = gathered if half else 0.0
        return RankMemory(
            states=states, copies=copies, update=update, build=built, activations=activations
        )
    layers = layers_of(parameters)
    copies = gathered if sharding == "zero2" else _GATHERED_UNITS * gathered / layers
    copies += parameters * _FULL / layers
    on_host = sharding == "offload"
    return RankMemory(
        states=0.0 if on_host else states / ranks,
        copies=copies,
        update=0.0 if on_host else update / ranks,
        host=states / ranks if on_host else 0.0,
        build=built,
        activations=activations,
    )


# The cost of training, from throughput and the price of a GPU-hour, in the price's own currency.
#
# At one price for every GPU the cost efficiency equals the scaling efficiency: the time that more
# GPUs lose is paid for.


_SECONDS = 3600.0
_MILLION = 1e6


class Cost(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The cost of training one configuration."""

    per_million: float  # per million samples, in the workload's unit
    per_epoch: float | None = None  # None: the samples of an epoch are not stated
    efficiency: float | None = None  # the cost on one GPU ÷ this cost; None: unknown


class Configuration(msgspec.Struct, frozen=True, kw_only=True):
    """The duration and the cost of a whole training on a number of GPUs."""

    world_size: int
    hours: float
    cost: float


def cost_of(
    *,
    world_size: int,
    throughput: float,
    price_per_gpu_hour: float,
    epoch_samples: int | None = None,
    single_throughput: float | None = None,
) -> Cost:
    """Compute the cost of a configuration from its throughput.

    ``throughput`` is in samples per second over all ranks, and ``single_throughput`` is that of one
    GPU. ``epoch_samples`` are the samples of an epoch, if that is stated.
    """
    per_sample = world_size * price_per_gpu_hour / _SECONDS / throughput
    single = price_per_gpu_hour / _SECONDS / single_throughput if single_throughput else None
    return Cost(
        per_million=per_sample * _MILLION,
        per_epoch=per_sample * epoch_samples if epoch_samples is not None else None,
        efficiency=single / per_sample if single is not None else None,
    )


def training(
    *, world_size: int, throughput: float, samples: float, price_per_gpu_hour: float
) -> Configuration:
    """Return the duration and cost of ``samples`` at this throughput (samples per second)."""
    return priced(world_size, samples / throughput / _SECONDS, price_per_gpu_hour)


def priced(world_size: int, hours: float, price_per_gpu_hour: float) -> Configuration:
    """Return the configuration that takes this many hours, with its cost."""
    return Configuration(
        world_size=world_size, hours=hours, cost=world_size * hours * price_per_gpu_hour
    )


def best_within(
    configurations: Iterable[Configuration],
    *,
    deadline_h: float | None = None,
    budget: float | None = None,
) -> Configuration | None:
    """Return the configuration that fits the deadline (hours) and the budget best, or None.

    With a deadline, or with no limit at all, it is the cheapest one that fits. With only a budget
    it is the fastest one that fits. Among equals it is the one with the fewest GPUs.
    """
    fits = [
        c
        for c in configurations
        if (deadline_h is None or c.hours <= deadline_h) and (budget is None or c.cost <= budget)
    ]
    for_speed = budget is not None and deadline_h is None
    return min(
        fits,
        key=lambda c: (c.hours if for_speed else c.cost, c.world_size),
        default=None,
    )
