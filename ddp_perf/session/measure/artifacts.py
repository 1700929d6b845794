"""Where a session leaves what is not a figure."""

from __future__ import annotations

import re
from pathlib import Path

from ddp_perf.core.case import Case


def profile_directory(root: Path, case: Case) -> Path:
    """For the traces of a case's ranks."""
    return _directory(root, "profile", case)


def hang_directory(root: Path, case: Case) -> Path:
    """For the flight records of ranks that hung."""
    return _directory(root, "hangs", case)


def _directory(root: Path, kind: str, case: Case) -> Path:
    """An id may hold the value of an environment variable: any text."""
    return root / "artifacts" / kind / case.suite / re.sub(r"[^\w.=-]", "_", case.id)
