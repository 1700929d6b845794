"""The files of a git repository that differ between a commit and the tree as it is."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from ddp_perf.errors import SideError
from ddp_perf.system.git import of_directory


def repository_root(directory: Path) -> Path:
    """Return the root of the repository that contains the directory. Raises SideError."""
    return Path(_git(directory, "rev-parse", "--show-toplevel").removesuffix("\n"))


def merge_base(directory: Path, revision: str) -> str:
    """Return the commit from which HEAD and ``revision`` went apart. Raises SideError."""
    try:
        return _git(directory, "merge-base", f"{revision}^{{commit}}", "HEAD").strip()
    except SideError as error:
        raise SideError(
            f"{revision} and HEAD have no common commit here; check the name, or fetch the whole"
            f" history, as with fetch-depth: 0 ({error})"
        ) from None


def changed_files(directory: Path, commit: str) -> tuple[str, ...]:
    """Return the files that differ between the commit and the tree, from the root on, sorted.

    Uncommitted and untracked files count, ignored ones do not. Both names of a renamed file are
    there. Nothing in the repository is written. Raises SideError.
    """
    root = repository_root(directory)
    index = root / _git(root, "rev-parse", "--git-path", "index").removesuffix("\n")
    with tempfile.TemporaryDirectory() as temporary:
        own = Path(temporary) / "index"  # `git diff` writes it: it must not be the user's
        if index.exists():
            shutil.copy2(index, own)  # with its time: files that are not older are read again
        environ = {"GIT_INDEX_FILE": str(own)}
        differ = _git(
            root, "diff", "--name-only", "--no-renames", "-z", commit, "--", environ=environ
        )
        new = _git(root, "ls-files", "--others", "--exclude-standard", "-z", environ=environ)
    return tuple(sorted({*differ.split("\0"), *new.split("\0")} - {""}))


def _git(directory: Path, *words: str, environ: Mapping[str, str] | None = None) -> str:
    try:
        done = subprocess.run(
            ["git", "-C", str(directory), *words],
            env={**of_directory(os.environ), "LC_ALL": "C", **(environ or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="surrogateescape",
        )
    except FileNotFoundError:
        raise SideError("there is no program git") from None
    if done.returncode != 0:
        problem = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[0]
        raise SideError(f"git {words[0]}: {problem}")
    return done.stdout
