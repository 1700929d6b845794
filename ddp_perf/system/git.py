"""The user's code in git, read only: its commit, and what the tree has beyond it.

Nothing in the repository changes, not even its index. Objects that git needs on the way are in a
temporary directory.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from ddp_perf.errors import SideError
from ddp_perf.render.units import counted
from ddp_perf.system.files import destination

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
    return subprocess.run(
        _command(directory, arguments),
        env=_environ(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        errors="surrogateescape",
        timeout=timeout_s,
    )


def _command(directory: Path, words: Sequence[str]) -> list[str]:
    return ["git", "-C", str(directory), *WITHOUT_WRITERS, *words]


def _environ() -> dict[str, str]:
    return {
        **of_directory(os.environ),
        "GIT_OPTIONAL_LOCKS": "0",  # else `git status` writes the index
        "GIT_NO_LAZY_FETCH": "1",  # a partial clone stays as it is
        "LC_ALL": "C",
    }


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


_MOST_READ = 8 * 2**20  # bytes of all files that differ from the commit
_MOST_KEPT = 2**20  # bytes of a patch: it is kept beside the baseline
_NO_COMMIT = ("not a git repository", "Needed a single revision")  # what git then writes
_HUNK = re.compile(r"@@ -\S+ \+(\d+)(?:,(\d+))? @@")
_CACHES = {"__pycache__", ".pytest_cache", ".hypothesis", ".mypy_cache", ".ruff_cache"}


class CodeState(msgspec.Struct, frozen=True, kw_only=True):
    """The code as it was: a commit, and a patch with what the tree had beyond it.

    ``tree`` is git's name of all files together, so equal names are equal files. It is None if the
    files are too large to be kept; ``problem`` then states why, with the remedy.
    """

    commit: str  # full hash, or enough of it
    tree: str | None
    patch: bytes = b""  # binary-safe, of `git diff`; b"": the tree is that of the commit
    problem: str | None = None


class CodeStateError(SideError):
    """A state or a repository that git does not have, or cannot put together again."""


def read_code_state(directory: Path, leave_out: Sequence[Path] = ()) -> CodeState | str:
    """Return the state of the repository that contains the directory, or why there is none.

    Ignored files do not count, nor what lies in ``leave_out``: files that sessions write.
    """
    try:
        top = repository_root(directory)
        commit = _git(top, "rev-parse", "--verify", "HEAD^{commit}").strip()
    except CodeStateError as error:
        if any(text in str(error) for text in _NO_COMMIT):
            return "it is not in a git repository with a commit; git init, and commit it"
        return str(error)
    try:
        with _scratch(top, with_index=True) as git:
            return _read(git, top, commit, [path.resolve() for path in leave_out])
    except CodeStateError as error:
        return CodeState(commit=commit, tree=None, problem=printable(str(error)))


def changed_between(directory: Path, before: CodeState, after: CodeState) -> tuple[str, ...]:
    """Return the files that differ between two states, from the repository's root on, sorted.

    Raises CodeStateError if one of them is not known whole, or is not in the repository.
    """
    if before.tree is not None and before.tree == after.tree:
        return ()
    with _scratch(repository_root(directory), with_index=False) as git:
        trees = [_put_together(git, state) for state in (before, after)]
        names = git("diff-tree", "-r", "-z", "--name-only", "--no-renames", *trees)
    return tuple(sorted({*names.split("\0")} - {""}))


def changed_lines(
    directory: Path, before: CodeState, after: CodeState, files: Sequence[str]
) -> tuple[str, ...]:
    """Return the lines of these files that are new or other, as ``model.py:12: x = y.clone()``.

    Where lines were only removed, the place is named. Raises CodeStateError as above.
    """
    with _scratch(repository_root(directory), with_index=False) as git:
        trees = [_put_together(git, state) for state in (before, after)]
        compare = ("--literal-pathspecs", "diff-tree", "-r", "-p", "-U0", "--no-renames", *trees)
        # One by one: git quotes names in a patch.
        patches = {file: git(*compare, "--", file) for file in files}
    found = (line for file, patch in patches.items() for line in _lines_of(file, patch))
    return tuple(map(printable, found))


def _lines_of(file: str, patch: str) -> Iterator[str]:
    """Yield the new lines of a patch without context, and the places of those that are gone."""
    number = None  # before the first hunk
    for line in patch.split("\n"):
        if hunk := _HUNK.match(line):
            number, count = int(hunk[1]), int(hunk[2] or 1)
            if count == 0:
                yield f"{file}:{number}: lines were removed below it"
        elif number is not None and line.startswith("+"):
            if line[1:].strip():
                yield f"{file}:{number}: {line[1:].strip()}"
            number += 1


def printable(text: str) -> str:
    """Return a text that can be written as UTF-8: bytes that are none are replaced."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def repository_root(directory: Path) -> Path:
    """Return the root of the repository that contains the directory. Raises CodeStateError."""
    return Path(_git(directory, "rev-parse", "--show-toplevel").removesuffix("\n"))


def merge_base(directory: Path, revision: str) -> str:
    """Return the commit from which HEAD and ``revision`` went apart. Raises CodeStateError."""
    try:
        return _git(directory, "merge-base", f"{revision}^{{commit}}", "HEAD").strip()
    except CodeStateError as error:
        raise CodeStateError(
            f"{revision} and HEAD have no common commit here; check the name, or fetch the whole"
            f" history, as with fetch-depth: 0 ({error})"
        ) from None


def changed_since(directory: Path, commit: str) -> tuple[str, ...]:
    """Return the files that differ between the commit and the tree, from the root on, sorted.

    Uncommitted and untracked files count, ignored ones do not. Both names of a renamed file are
    there. Raises CodeStateError.
    """
    # `git diff` writes the index, so this is not the user's.
    with _scratch(repository_root(directory), with_index=True) as git:
        differ = git("diff", "--name-only", "--no-renames", "-z", commit, "--")
        new = git("ls-files", "--others", "--exclude-standard", "-z")
    return tuple(sorted({*differ.split("\0"), *new.split("\0")} - {""}))


def has_commit(directory: Path, commit: str) -> bool:
    """Return whether the repository has the commit with its files."""
    try:
        _git(directory, "cat-file", "-e", f"{commit}^{{tree}}")
    except CodeStateError:
        return False
    return True


def commit_dates(directory: Path) -> dict[str, int]:
    """Return the date of every commit, in seconds since 1970, by its full hash.

    Raises CodeStateError.
    """
    lines = _git(directory, "log", "--all", "--format=%H %ct").splitlines()
    return {commit: int(date) for commit, date in map(str.split, lines)}


def tree_of(directory: Path, commit: str) -> str:
    """Return git's name of all files of the commit. Raises CodeStateError."""
    return _git(directory, "rev-parse", f"{commit}^{{tree}}").strip()


class _Git:
    """Runs git with an index and a place for new objects of its own."""

    def __init__(self, top: Path, scratch: Path) -> None:
        self._top = top
        objects = _git(top, "rev-parse", "--git-path", "objects").removesuffix("\n")
        self._environ = {
            "GIT_INDEX_FILE": str(scratch / "index"),
            "GIT_OBJECT_DIRECTORY": str(scratch / "objects"),
            "GIT_ALTERNATE_OBJECT_DIRECTORIES": _quoted((top / objects).resolve()),
        }
        (scratch / "objects").mkdir()

    def __call__(self, *words: str, given: bytes = b"") -> str:
        return self.read(*words, given=given).decode("utf-8", "surrogateescape")

    def read(self, *words: str, given: bytes = b"") -> bytes:
        return _run(self._top, words, given, self._environ)


def _quoted(path: Path) -> str:
    """Return the path as git quotes it in a list of paths, which colons separate."""
    text = str(path).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"'


@contextlib.contextmanager
def _scratch(top: Path, *, with_index: bool) -> Iterator[_Git]:
    index = top / _git(top, "rev-parse", "--git-path", "index").removesuffix("\n")
    with tempfile.TemporaryDirectory() as temporary:
        if with_index and index.exists():
            # With its time: git reads files again that are not older than the index.
            shutil.copy2(index, Path(temporary, "index"))
        yield _Git(top, Path(temporary))


def _read(git: _Git, top: Path, commit: str, leave_out: Sequence[Path]) -> CodeState:
    listed = git("ls-files", "-z", "--modified", "--deleted", "--others", "--exclude-standard")
    names = sorted({name for name in listed.split("\0") if name and _counts(top, name, leave_out)})
    inner = next((name for name in names if name.endswith("/")), None)
    if inner is not None:
        raise CodeStateError(f"{inner} is a repository of its own; add it to .gitignore")
    _check_submodules(git)
    if sum(_size(top / name) for name in names) > _MOST_READ:
        raise CodeStateError(_too_large(top, names))
    paths = b"\0".join(map(os.fsencode, names))
    git("update-index", "--add", "--remove", "-z", "--stdin", given=paths)
    tree = git("write-tree").strip()
    if tree == git("rev-parse", f"{commit}^{{tree}}").strip():
        return CodeState(commit=commit, tree=tree)
    patch = git.read("diff-index", "--cached", "--patch", "--binary", "--full-index", commit)
    if len(patch) > _MOST_KEPT:
        differ = git("diff-index", "--cached", "-z", "--name-only", "--no-renames", commit)
        raise CodeStateError(_too_large(top, differ.split("\0")[:-1]))
    return CodeState(commit=commit, tree=tree, patch=patch)


def _check_submodules(git: _Git) -> None:
    """Raise CodeStateError if there is one: edits of its files do not change the tree's name."""
    entries = git("ls-files", "-z", "--stage").split("\0")
    found = next((entry for entry in entries if entry.startswith("160000 ")), None)
    if found is not None:
        name = found.partition("\t")[2]
        raise CodeStateError(
            f"{name} is a submodule, whose files would be missing; commit its files instead"
            " (git subtree), or depend on it as an installed package"
        )


def _counts(top: Path, name: str, leave_out: Sequence[Path]) -> bool:
    is_cache = bool(_CACHES & {*Path(name).parts})
    return not is_cache and not any(map(destination(top / name).is_relative_to, leave_out))


def _size(path: Path) -> int:
    try:
        return path.lstat().st_size
    except OSError:  # it is deleted
        return 0


def _too_large(top: Path, names: Sequence[str]) -> str:
    sizes = {name: _size(top / name) for name in names}
    largest = max(sizes, key=sizes.__getitem__)
    verb = "is" if len(sizes) == 1 else "are"
    return (
        f"{counted(len(sizes), 'file')} {verb} not committed, and too large to be kept ({largest}"
        f" has {sizes[largest] / 2**20:.1f} MiB); commit them, or add them to .gitignore"
    )


def _put_together(git: _Git, state: CodeState) -> str:
    """Return the name of the state's tree, whose objects the scratch then has."""
    if state.tree is None:
        raise CodeStateError(state.problem or "its files are not known")
    git("read-tree", state.commit)
    if state.patch:
        git("apply", "--cached", "--whitespace=nowarn", given=state.patch)
    tree = git("write-tree").strip()
    if tree != state.tree:
        raise CodeStateError(f"what the tree had beyond {state.commit[:12]} was not kept")
    return tree


def _git(directory: Path, *words: str) -> str:
    return _run(directory, words, b"", {}).decode("utf-8", "surrogateescape")


def _run(directory: Path, words: Sequence[str], given: bytes, environ: dict[str, str]) -> bytes:
    try:
        done = subprocess.run(
            _command(directory, words),
            env=_environ() | environ,
            input=given,
            capture_output=True,
        )
    except OSError as error:
        raise CodeStateError(f"git cannot be started: {error.strerror}") from None
    if done.returncode != 0:
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines() or ["failed"]
        remedy = next((line.strip() for line in lines if "--add safe.directory" in line), None)
        raise CodeStateError(f"git {words[0]}: {lines[0]}" + (f"; run {remedy}" if remedy else ""))
    return done.stdout
