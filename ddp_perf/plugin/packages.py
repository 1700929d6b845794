"""The packages that the plugin imports at once: without one, pytest ends with one line.

pytest imports the plugin before any conftest.py where ``*.egg-info`` lies beside ddp_perf, also for
an interpreter that has none of the packages.
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
_ENVIRONMENT = Path(__file__).parents[2] / ".venv" / "bin" / "activate"  # ci/setup.sh makes it


def require_packages() -> None:
    """Raise UsageError if a package is missing."""
    missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
    if not missing:
        return
    remedy = f"{sys.executable} -m pip install {' '.join(PACKAGES[name] for name in missing)}"
    if _ENVIRONMENT.exists():
        remedy = f"source {os.path.relpath(_ENVIRONMENT)}"
    raise pytest.UsageError(f"{sys.executable} has no {', '.join(missing)}: {remedy}")


require_packages()  # before the imports of ddp_perf/plugin/__init__.py that follow this one
