"""Environment variables that change how ranks train, if pytest was started with them."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path

from ddp_perf.core.case import LOGGING_VARIABLES, Tier
from ddp_perf.core.secret import is_secret_name, without_passwords

LIBRARY_PATH = "LD_LIBRARY_PATH"
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
    "FI_",  # libfabric, the network of EFA
    "UCX_",
    LIBRARY_PATH,  # which NCCL, and which network plugin, is found
)
_HOST_SETTINGS = Path("/etc/nccl.conf")


def training_variables(tier: Tier, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of ``environ`` that change how ranks of the tier train, by name.

    Variables that a suite sets are part of its cases, not of the result. On the gpu tier those of
    nccl.conf are included, which NCCL reads as well. No secret is among them.
    """
    prefixes = (*_OF_TORCH, *_OF_GPUS) if tier == "gpu" else _OF_TORCH
    settings = nccl_settings(environ) if tier == "gpu" else {}
    return {
        name: without_passwords(value)
        for name, value in sorted({**settings, **environ}.items())
        if name.startswith(prefixes) and name not in LOGGING_VARIABLES and not is_secret_name(name)
    }


def nccl_settings(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that NCCL reads from its files, if ``environ`` does not set them.

    The user's file comes before the host's (NCCL's src/misc/param.cc).
    """
    home = environ.get("HOME")
    own = environ.get("NCCL_CONF_FILE") or (f"{home}/.nccl.conf" if home else None)
    found: dict[str, str] = {}
    for file in (_HOST_SETTINGS, *((Path(own),) if own else ())):
        with contextlib.suppress(OSError):
            lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
            pairs = (line.split("=", 1) for line in lines if "=" in line and line[0] != "#")
            found.update({name.strip(): value.strip() for name, value in pairs})
    return found
