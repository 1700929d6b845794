"""A checkout of a revision, away from the user's repository, whose files are only read."""

from __future__ import annotations

import contextlib
import hashlib
import os
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import msgspec

from ddp_perf.duel.sides.cache import Making, cache_shelf, kept
from ddp_perf.duel.sides.repository import Repository
from ddp_perf.errors import SideError
from ddp_perf.system.git import of_directory

_Files = dict[str, str]  # the digest of each file, by its path
_FILES = Path(".git", "ddp_perf_files.json")
_MOST = 64  # checkouts that stay in the cache: a bisect returns to its commits


@contextlib.contextmanager
def checked_out(
    commit: str,
    repository: Repository,
    on_progress: Callable[[str], None],
    *,
    patch: str | None = None,
) -> Iterator[Path]:
    """Yield the directory with the files of the commit, and of a ``patch`` of it.

    Raises SideError.
    """
    key = commit if patch is None else f"{commit}+{_digest(Path(patch))[:16]}"

    def make(directory: Path) -> None:
        on_progress(f"checking out {commit[:12]}{' with changes' if patch else ''}")
        _check_out(commit, repository, directory)
        if patch is not None:
            _apply(patch, directory)
        files = {name: _digest(path) for name, path in _files_of(directory)}
        (directory / _FILES).write_bytes(msgspec.json.encode(files))
        if _has_filters(directory):
            on_progress(
                f"{commit[:12]}: files that a filter keeps elsewhere (git-lfs) stay pointers"
            )

    making = Making(make, _is_unchanged, on_progress)
    with kept(cache_shelf("checkouts", _MOST, os.environ), key, making) as directory:
        yield directory


def _check_out(commit: str, repository: Repository, directory: Path) -> None:
    """Make a repository that borrows the user's objects, and check the commit out in it.

    A clone would do the same with all branches, and not with a shallow repository.
    """
    object_format = f"--object-format={repository.object_format}"
    _git(directory.parent, "init", "--quiet", "--template=", object_format, directory.name)
    information = directory / ".git" / "objects" / "info"
    information.mkdir(exist_ok=True)
    (information / "alternates").write_text(f"{repository.objects}\n", encoding="utf-8")
    done = _git(directory, "checkout", "--quiet", "--detach", commit)
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or ["git checkout failed"]
        raise SideError(
            f"{commit[:12]}: cannot be checked out: {lines[-1]}; in a partial clone fetch its files"
            " with `git fetch --refetch --filter=blob:limit=1t`"
        )


def _apply(patch: str, directory: Path) -> None:
    done = _git(directory, "apply", "--whitespace=nowarn", os.path.abspath(patch))
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or ["git apply failed"]
        raise SideError(f"{patch}: does not fit its commit: {lines[-1]}")


def _is_unchanged(directory: Path) -> bool:
    """Return whether each file is as it was checked out. Others may have been written beside it.

    Git is not asked: the user's repository may have lost the objects, and git takes a file that
    breaks its own rule of line ends for changed.
    """
    try:
        listed = msgspec.json.decode((directory / _FILES).read_bytes(), type=_Files)
    except (OSError, msgspec.DecodeError):
        return False
    found = {name: _digest(path) for name, path in _files_of(directory) if name in listed}
    return found == listed


def _files_of(directory: Path) -> Iterator[tuple[str, Path]]:
    """Yield each file, with its path as it is listed, without those of git."""
    for folder, folders, names in os.walk(directory):
        if ".git" in folders:
            folders.remove(".git")
        for name in names:
            path = Path(folder, name)
            yield (
                os.fsencode(path.relative_to(directory)).decode("utf-8", "backslashreplace"),
                path,
            )


def _digest(path: Path) -> str:
    """Return the digest of a file's content, or of what a link names. Times can be set back."""
    if path.is_symlink():
        return f"link:{hashlib.sha256(os.fsencode(path.readlink())).hexdigest()}"
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _has_filters(directory: Path) -> bool:
    attributes = directory / ".gitattributes"
    return attributes.is_file() and b"filter=" in attributes.read_bytes()


def _git(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run git in the cache without the user's settings: no hook, filter or monitor is run."""
    return subprocess.run(
        ["git", "-c", "core.hooksPath=/dev/null", "-C", str(directory), *arguments],
        env=_without_settings(os.environ),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        errors="surrogateescape",
    )


def _without_settings(environ: Mapping[str, str]) -> dict[str, str]:
    settings = ("GIT_CONFIG", "GIT_TEMPLATE_DIR", "GIT_ATTR_SOURCE")
    kept_variables = {
        name: value
        for name, value in of_directory(environ).items()
        if not name.startswith(settings)
    }
    return {
        **kept_variables,
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "LC_ALL": "C",
    }
