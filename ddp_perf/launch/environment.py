"""The environment of the processes that import torch: forkservers, and ranks under torchrun."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import ddp_perf
from ddp_perf.errors import LaunchError


def server_environment(environ: Mapping[str, str], package: Path | None = None) -> dict[str, str]:
    """Return ``environ`` with the settings that allow the server to be forked.

    ``package`` is the directory from which it imports ddp_perf; None: that of this process.

    The server must import this package, even if it is not installed there. It must stay
    single-threaded: numpy's OpenBLAS would start a thread per core when it is imported. It must
    never initialise CUDA: ``torch.cuda.is_available()`` does unless it may use NVML. Ranks must
    number GPUs as NVML does. Strings have the hashes of every other session, since a workload may
    iterate over a set; a user's own PYTHONHASHSEED stays.
    """
    return {
        "PYTHONHASHSEED": "0",
        **environ,
        "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "OPENBLAS_NUM_THREADS": "1",
        "PYTHONPATH": package_path(environ, package),
    }


def package_directory() -> Path:
    """Return the directory from which this process imports ddp_perf."""
    return Path(ddp_perf.__file__).parents[1]


def package_path(environ: Mapping[str, str], package: Path | None = None) -> str:
    """Return a PYTHONPATH that finds this package first, or the one in the directory."""
    first = str(package_directory() if package is None else package)
    return os.pathsep.join(filter(None, [first, environ.get("PYTHONPATH", "")]))


def package_alone(package: Path, scratch: Path) -> Path:
    """Return a directory in ``scratch`` from which ddp_perf can be imported and nothing else.

    The package may be installed beside a torch, which another interpreter would import in the place
    of its own.
    """
    alone = scratch / "package"
    if not alone.exists():
        alone.mkdir()
        (alone / "ddp_perf").symlink_to(package / "ddp_perf")
    return alone


def check_device_order(environ: Mapping[str, str]) -> None:
    """Raise LaunchError if CUDA would number the GPUs in another order than NVML.

    NVML's readings belong to the GPUs in NVML's order. In another order a mask would choose other
    GPUs than the user meant, and the figures of rank r would be those of another GPU.
    """
    order = environ.get("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    if order != "PCI_BUS_ID":
        raise LaunchError(
            f"CUDA_DEVICE_ORDER={order}: this suite numbers GPUs by their PCI bus ids, as"
            " nvidia-smi does; unset it, and choose GPUs by CUDA_VISIBLE_DEVICES in that order"
        )
