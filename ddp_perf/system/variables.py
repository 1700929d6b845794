"""Environment variables that change how ranks train, if pytest was started with them."""

from __future__ import annotations

from collections.abc import Mapping

from ddp_perf.core.case import LOGGING_VARIABLES, Tier

_OF_TORCH = ("TORCH_DISTRIBUTED_DEBUG", "TORCHINDUCTOR_")
_OF_GPUS = (
    "NCCL_",
    "TORCH_NCCL_",
    "PYTORCH_ALLOC_CONF",
    "PYTORCH_CUDA_ALLOC_CONF",
    "PYTORCH_NO_CUDA_MEMORY_CACHING",
    "NVIDIA_TF32_OVERRIDE",
    "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",
    "CUBLAS_",
    "CUBLASLT_",
    "CUDNN_",
    "CUDA_LAUNCH_BLOCKING",
    "CUDA_DEVICE_MAX_CONNECTIONS",
    "CUDA_MODULE_LOADING",
    "OMP_NUM_THREADS",  # on the CPU tier only a suite's `env` sets it
)


def training_variables(tier: Tier, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of ``environ`` that change how ranks of the tier train, by name.

    Variables that a suite sets are part of its cases, not of the result.
    """
    prefixes = (*_OF_TORCH, *_OF_GPUS) if tier == "gpu" else _OF_TORCH
    return {
        name: value
        for name, value in sorted(environ.items())
        if name.startswith(prefixes) and name not in LOGGING_VARIABLES
    }
