"""The folders of a session's artifacts: traces, flight records, and what ranks print."""

from __future__ import annotations

import re
from pathlib import Path

from ddp_perf.core.case import Case


def profile_directory(root: Path, case: Case) -> Path:
    """Return the folder for the traces of a case's ranks."""
    return _directory(root, "profile", case)


def hang_directory(root: Path, case: Case) -> Path:
    """Return the folder for the flight records of a case's ranks that hung."""
    return _directory(root, "hangs", case)


def output_directory(root: Path, case: Case) -> Path:
    """Return the folder for what a case's ranks print in its first launch."""
    return _directory(root, "output", case)


def _directory(root: Path, kind: str, case: Case) -> Path:
    """Return the folder of a case. Its id may contain an environment variable's value: any text."""
    return root / "artifacts" / kind / case.suite / re.sub(r"[^\w.=-]", "_", case.id)
