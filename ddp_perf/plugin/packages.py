"""The packages that the hooks import at once: without one, pytest ends with one line.

pytest loads the plugin where ``*.egg-info`` lies beside ddp_perf, also for an interpreter that has
none of the packages.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

import pytest

# By the name that is imported, the name that pip installs.
PACKAGES = {
    "filelock": "filelock",
    "msgspec": "msgspec",
    "pynvml": "nvidia-ml-py",
    "yaml": "PyYAML",
}
_ROOT = Path(__file__).parents[2]  # of a clone, or the directory of installed packages


def require_packages() -> None:
    """Raise UsageError if a package is missing."""
    missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise pytest.UsageError(f"{sys.executable} has no {', '.join(missing)}: {_remedy(missing)}")


def _remedy(missing: list[str]) -> str:
    activate, bench = _ROOT / ".venv" / "bin" / "activate", _ROOT / "ci" / "bench"
    if activate.exists():
        return f"source {os.path.relpath(activate)}"
    if bench.exists():
        return f"{os.path.relpath(bench)} makes .venv, which has all packages"
    return f"{sys.executable} -m pip install {' '.join(PACKAGES[name] for name in missing)}"
