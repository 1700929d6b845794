"""Questions to git, which change nothing in the repository, not even its index."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

# Git sets some of these for its hooks: they lead to another repository than that of the directory.
_LEADING_ELSEWHERE = frozenset(
    {
        "GIT_ALTERNATE_OBJECT_DIRECTORIES",
        "GIT_COMMON_DIR",
        "GIT_DIR",
        "GIT_GRAFT_FILE",
        "GIT_IMPLICIT_WORK_TREE",
        "GIT_INDEX_FILE",
        "GIT_NAMESPACE",
        "GIT_OBJECT_DIRECTORY",
        "GIT_PREFIX",
        "GIT_QUARANTINE_PATH",
        "GIT_SHALLOW_FILE",
        "GIT_WORK_TREE",
    }
)
# A file monitor, a split index and a filter of large files write into .git.
WITHOUT_WRITERS = [
    *("-c", "core.fsmonitor=false", "-c", "core.splitIndex=false"),
    *("-c", "filter.lfs.clean=", "-c", "filter.lfs.process=", "-c", "filter.lfs.required=false"),
]


class Head(NamedTuple):
    """The commit that is checked out."""

    commit: str  # full hash
    changed: bool  # a file that git tracks differs from it


def of_directory(environ: Mapping[str, str]) -> dict[str, str]:
    """Return ``environ`` without what leads git to another repository than the directory's."""
    return {name: value for name, value in environ.items() if name not in _LEADING_ELSEWHERE}


def ask_git(
    directory: Path, *arguments: str, timeout_s: float | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command of git in ``directory`` that only reads, and return how it ended.

    Raises OSError if git cannot be started, and TimeoutExpired.
    """
    environ = {
        **of_directory(os.environ),
        "GIT_OPTIONAL_LOCKS": "0",  # else `git status` writes the index
        "GIT_NO_LAZY_FETCH": "1",  # a partial clone stays as it is
        "LC_ALL": "C",
    }
    return subprocess.run(
        ["git", "-C", str(directory), *WITHOUT_WRITERS, *arguments],
        env=environ,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        errors="surrogateescape",
        timeout=timeout_s,
    )


def branch_of(directory: Path, *, timeout_s: float = 10) -> str | None:
    """Return the branch that is checked out in ``directory``; None: there is none, or no git."""
    try:
        found = ask_git(
            directory, "symbolic-ref", "--short", "--quiet", "HEAD", timeout_s=timeout_s
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return found.stdout.strip() or None


def head_of(directory: Path, *, timeout_s: float = 10) -> Head | None:
    """Return the commit in ``directory``; None: there is no git, no repository, or no commit."""
    try:
        head = ask_git(directory, "rev-parse", "--verify", "--quiet", "HEAD", timeout_s=timeout_s)
        if head.returncode != 0:
            return None
        status = ("status", "--porcelain", "--untracked-files=no")
        changes = ask_git(directory, *status, timeout_s=timeout_s)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return Head(head.stdout.strip(), bool(changes.stdout)) if changes.returncode == 0 else None
