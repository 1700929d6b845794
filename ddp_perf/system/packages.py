"""The software beside the code: installed distributions, and variables that change training."""

from __future__ import annotations

import contextlib
import importlib.metadata
from collections.abc import Iterable, Mapping
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from ddp_perf.core.case import LOGGING_VARIABLES, Tier

# Environment variables that change how ranks train, if pytest was started with them.


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
    nccl.conf are included, which NCCL reads as well.
    """
    prefixes = (*_OF_TORCH, *_OF_GPUS) if tier == "gpu" else _OF_TORCH
    settings = nccl_settings(environ) if tier == "gpu" else {}
    return {
        name: value
        for name, value in sorted({**settings, **environ}.items())
        if name.startswith(prefixes) and name not in LOGGING_VARIABLES
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


# The installed distributions that modules come from, and all that these need.


def versions_behind(modules: Iterable[str]) -> dict[str, str]:
    """Return the version of each distribution that the modules come from, and of what it needs.

    Modules that no distribution provides, such as those of the standard library, are left out.
    Optional requirements do not count.
    """
    providers = importlib.metadata.packages_distributions()
    waiting = [name for module in sorted({*modules}) for name in providers.get(module, ()) if name]
    versions: dict[str, str] = {}
    while waiting:
        name = str(canonicalize_name(waiting.pop()))
        if name in versions:
            continue
        try:
            found = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        if "Version" not in found.metadata:  # a removal that was interrupted left no metadata
            continue
        versions[name] = found.version
        waiting += _requirements(found)
    return dict(sorted(versions.items()))


def _requirements(found: importlib.metadata.Distribution) -> Iterable[str]:
    for text in found.requires or ():
        try:
            needed = Requirement(text)
        except InvalidRequirement:  # of an old package: pip refuses it as well
            continue
        if needed.marker is None or needed.marker.evaluate({"extra": ""}):
            yield needed.name
