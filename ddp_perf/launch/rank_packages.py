"""The packages that an interpreter needs to run ranks, beside ddp_perf itself.

This file imports the standard library alone: it also runs where the packages are missing.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Mapping

# By the name of the module, as pip calls them. A server, its ranks and a relay import nothing else,
# except numpy where it is installed, and what a workload itself needs (`core/subject.py`).
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
