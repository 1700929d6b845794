"""The interpreter that runs ranks: the packages and the environment that it needs.

This file imports the standard library alone: it also runs where the packages are missing.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

# By the name of the module, as pip calls them. A server and its ranks import nothing else, except
# numpy where it is installed, and what a workload itself needs (`core/subject.py`).
RANK_PACKAGES = {
    "torch": "torch>=2.6",
    "msgspec": "msgspec>=0.19",
    "pynvml": "nvidia-ml-py>=12.535",
    "psutil": "psutil>=5.9",
}
_FIND_S = 60.0  # on a cold network disk


def missing_here() -> list[str]:
    """Return the packages that this interpreter lacks, as pip calls them."""
    return [name for module, name in RANK_PACKAGES.items() if not importlib.util.find_spec(module)]


def missing_in(interpreter: str, environ: Mapping[str, str] | None = None) -> list[str]:
    """Return the packages that another interpreter lacks, as pip calls them.

    Raises OSError if it cannot be started, and subprocess.SubprocessError if it fails.
    """
    done = subprocess.run(
        [interpreter, "-c", _FIND, *RANK_PACKAGES],
        env=dict(os.environ if environ is None else environ),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        timeout=_FIND_S,
        check=True,
    )
    return [RANK_PACKAGES[module] for module in done.stdout.split()]


_FIND = """
import importlib.util, sys
print(*[module for module in sys.argv[1:] if not importlib.util.find_spec(module)])
"""


def install_command(missing: list[str], interpreter: str = sys.executable) -> str:
    """Return the command that installs the packages."""
    return " ".join([interpreter, "-m pip install", *(f"'{package}'" for package in missing)])


# The environment of the processes that import torch.


def server_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return ``environ`` with the settings that allow the server to be forked.

    It must stay single-threaded: numpy's OpenBLAS would start a thread per core when it is
    imported. It must never initialise CUDA: ``torch.cuda.is_available()`` does unless it may use
    NVML. Ranks must number GPUs as NVML does. Strings have the hashes of every other session, since
    a workload may iterate over a set; a user's own PYTHONHASHSEED stays.
    """
    return {
        "PYTHONHASHSEED": "0",
        **environ,
        "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "OPENBLAS_NUM_THREADS": "1",
    }


def package_directory() -> Path:
    """Return the directory from which this process imports ddp_perf."""
    return Path(__file__).parents[2]


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
