"""Checkouts of revisions away from the user's repository, in a cache."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from ddp_perf.errors import SideError, did_you_mean
from ddp_perf.system.git import ask_git, of_directory

# The cache: checkouts and virtual environments, each of which is whole or is made again.
#
# An entry is a directory with a mark, which is written last. A process that uses an entry holds a
# shared lock on it, and one that makes or removes it an exclusive lock; the kernel releases both
# when the process ends. The lock is a file beside the entry.


_MARK = "whole"  # its time of change is when the entry was last used
_CONTENT = "content"


class Shelf(NamedTuple):
    """The entries of one kind, of which the ``most`` that were used last are kept."""

    path: Path
    most: int


def cache_shelf(kind: str, most: int, environ: Mapping[str, str]) -> Shelf:
    """Return a shelf of the user's cache: in XDG_CACHE_HOME, or in ~/.cache.

    Raises SideError for a user without a home, as in a container with another user's number.
    """
    named = environ.get("XDG_CACHE_HOME", "")
    # The specification says that a relative path is to be ignored.
    base = Path(named) if os.path.isabs(named) else Path(os.path.expanduser("~/.cache"))
    if not base.is_absolute():
        raise SideError("this user has no home directory: set XDG_CACHE_HOME to one for the cache")
    return Shelf(base / "ddp-perf" / kind, most)


class Making(NamedTuple):
    """The ways to make an entry, and to check it when it is used again."""

    make: Callable[[Path], None]  # in this directory, which does not exist yet
    is_whole: Callable[[Path], bool]
    on_progress: Callable[[str], None]


@contextlib.contextmanager
def kept(shelf: Shelf, key: str, making: Making) -> Iterator[Path]:
    """Yield the content of the entry ``key``, which no process removes during the ``with`` block.

    It is made if it is missing, or not whole. Raises SideError if it cannot be written.
    """
    with contextlib.ExitStack() as held:
        try:
            # Ranks run what is there: nobody else may write it, whatever the umask.
            for directory in (shelf.path.parents[1], shelf.path.parent, shelf.path):
                directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            content = _whole(shelf, key, making, held)
            _remove_oldest(shelf)
        except OSError as error:
            raise SideError(
                f"{error.filename or shelf.path}: cannot be written ({error.strerror}); make room"
                " there, or set XDG_CACHE_HOME to a directory that can be written"
            ) from None
        yield content


def is_kept(shelf: Shelf, key: str) -> bool:
    """Return whether the entry ``key`` was made."""
    return (shelf.path / key / _MARK).exists()


def _whole(shelf: Shelf, key: str, making: Making, held: contextlib.ExitStack) -> Path:
    """Return the content once it is whole, locked until ``held`` is closed."""
    entry = shelf.path / key
    while True:
        shared = _lock(entry, exclusive=False, on_wait=making.on_progress)
        marked = (entry / _MARK).exists()
        if marked and making.is_whole(entry / _CONTENT):
            held.callback(os.close, shared)
            os.utime(entry / _MARK)
            return entry / _CONTENT
        os.close(shared)
        try:
            on_wait = None if marked else making.on_progress
            exclusive = _lock(entry, exclusive=True, on_wait=on_wait)
        except BlockingIOError:  # to wait for its user would be forever if that is this process
            raise SideError(
                f"{entry / _CONTENT}: its files were changed while a duel uses them; end that duel,"
                " and let ranks write elsewhere"
            ) from None
        try:
            if not (entry / _MARK).exists() or not making.is_whole(entry / _CONTENT):
                _make(entry, making)
        finally:
            if not entry.exists():
                _lock_file(entry).unlink(missing_ok=True)
            os.close(exclusive)


def _make(entry: Path, making: Making) -> None:
    """Make the entry from nothing. A failure, or an interrupt, leaves nothing of it.

    What is there is renamed first: git may outlive a process that was killed, and still write.
    """
    if entry.exists():
        old = Path(tempfile.mkdtemp(prefix="old-", dir=entry.parent))
        entry.rename(old / entry.name)
        shutil.rmtree(old, ignore_errors=True)
    entry.mkdir()
    try:
        making.make(entry / _CONTENT)
        (entry / _MARK).touch()
    except BaseException:
        shutil.rmtree(entry, ignore_errors=True)
        raise


def _remove_oldest(shelf: Shelf) -> None:
    """Remove the entries that were used longest ago, unless a process uses them."""
    entries = sorted(filter(Path.is_dir, shelf.path.iterdir()), key=_last_use)
    surplus = len(entries) - shelf.most
    for entry in entries:
        if surplus <= 0:
            return
        with contextlib.suppress(BlockingIOError):
            lock = _lock(entry, exclusive=True, on_wait=None)
            shutil.rmtree(entry, ignore_errors=True)
            _lock_file(entry).unlink(missing_ok=True)
            os.close(lock)
            surplus -= 1


def _last_use(entry: Path) -> int:
    """Return when the entry was last used; 0: it is being made, or what made it was killed."""
    try:
        return (entry / _MARK).stat().st_mtime_ns
    except FileNotFoundError:
        return 0


def _lock(entry: Path, *, exclusive: bool, on_wait: Callable[[str], None] | None) -> int:
    """Return the descriptor of the locked file. Without ``on_wait``: raise BlockingIOError."""
    import fcntl  # here, since Windows has none: the package can be imported there

    path, how = _lock_file(entry), fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            try:
                fcntl.flock(descriptor, how | fcntl.LOCK_NB)
            except BlockingIOError:
                if on_wait is None:
                    raise
                on_wait(f"waiting for another process, which makes or uses {entry}")
                fcntl.flock(descriptor, how)
            if path.exists() and os.fstat(descriptor).st_ino == path.stat().st_ino:
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)  # another process removed the entry before it was locked


def _lock_file(entry: Path) -> Path:
    return entry.parent / f"{entry.name}.lock"


# The git repository of the user's project. It is only read.


_OLDEST = (2, 32)  # it introduced GIT_CONFIG_GLOBAL
_KINDS = "., a revision, env:NAME=VALUE, python:PATH, torch==2.11.0 or 'command: … {command}'"


class Repository(NamedTuple):
    """A repository, and the place of the project in it."""

    top: Path  # of the checked-out files
    prefix: str  # of the project below `top`: "" or "training/gpt"
    objects: Path
    object_format: str  # "sha1" or "sha256"


def find_repository(root: Path) -> Repository:
    """Return the repository that the directory is in. Raises SideError."""
    _check_version(root)
    formats = ("--show-toplevel", "--git-path", "objects", "--show-object-format")
    top, objects, object_format = answer_of_git(root, "rev-parse", *formats).splitlines()
    return Repository(
        top=Path(top),
        prefix=answer_of_git(root, "rev-parse", "--show-prefix").strip("\n/"),
        objects=(root / objects).resolve(),
        object_format=object_format,
    )


def _check_version(root: Path) -> None:
    """Raise SideError for a git that would run the user's hooks and filters in a checkout."""
    shown = answer_of_git(root, "version").split()[2]  # "git version 2.39.5 (Apple Git-154)"
    if tuple(map(int, shown.split(".")[:2])) < _OLDEST:
        oldest = ".".join(map(str, _OLDEST))
        raise SideError(f"git {shown}: a revision as a side needs git {oldest} or later; update it")


def resolve_commit(repository: Repository, revision: str) -> str:
    """Return the full hash of a revision's commit. Raises SideError if there is none."""
    verify = ("rev-parse", "--verify", "--quiet", "--end-of-options")
    # Of ":/text" the rest of the argument is the text, so the object is named first.
    named = ask_git(repository.top, *verify, revision).stdout.strip()
    found = ask_git(repository.top, *verify, f"{named or revision}^{{commit}}")
    if found.returncode == 0:
        return found.stdout.strip()
    kind = ask_git(repository.top, "cat-file", "-t", named).stdout.strip() if named else ""
    if kind:
        raise SideError(
            f"{revision}: a {kind} of git, not a commit; name a commit, by branch, tag or hash"
        )
    if answer_of_git(repository.top, "rev-parse", "--is-shallow-repository").strip() == "true":
        raise SideError(
            f"{revision}: not in {repository.top}, a shallow clone: fetch it with"
            " `git fetch --unshallow` (in CI: fetch-depth: 0)"
        )
    references = answer_of_git(
        repository.top, "for-each-ref", "--format=%(refname:short)", "refs/heads", "refs/tags",
        "refs/remotes",
    )  # fmt: skip
    near = did_you_mean(revision, references.splitlines())
    raise SideError(
        f"{revision}: no revision of {repository.top}" + (near or f"; a side is {_KINDS}")
    )


def full_name(repository: Repository, revision: str) -> str:
    """Return the unmistakable name of a branch or tag, or the hash of another revision."""
    named = ask_git(repository.top, "rev-parse", "--symbolic-full-name", revision).stdout.strip()
    return named or resolve_commit(repository, revision)


def check_files(repository: Repository, commit: str, label: str) -> None:
    """Raise SideError if the commit cannot be checked out with all its files."""
    tree = answer_of_git(repository.top, "ls-tree", "-r", "-z", "--full-tree", commit).split("\0")
    submodules = [entry.partition("\t")[2] for entry in tree if entry.startswith("160000 ")]
    if submodules:
        raise SideError(
            f"{label}: has the submodule {submodules[0]}, whose files would be missing; commit its"
            " files instead (git subtree), or depend on it as an installed package"
        )
    inside = f"{repository.prefix}/" if repository.prefix else ""
    if not any(entry.partition("\t")[2].startswith(inside) for entry in tree):
        raise SideError(f"{label}: has no directory {repository.prefix}; run in one that it has")


def answer_of_git(directory: Path, *arguments: str) -> str:
    """Return what git writes. Raises SideError, which names the remedy."""
    try:
        done = ask_git(directory, *arguments)
    except OSError as error:
        raise SideError(
            f"git cannot be started ({error.strerror}): a revision as a side needs it; install git"
        ) from None
    if done.returncode == 0:
        return done.stdout
    lines = done.stderr.strip().splitlines() or ["git failed without a message"]
    if "not a git repository" in lines[0]:
        raise SideError(
            f"{directory}: not in a git repository, so it has no revisions; run in the project, or"
            " compare with an env:, python: or torch== side"
        )
    remedy = next((line.strip() for line in lines if "safe.directory" in line), None)
    raise SideError(f"{directory}: {lines[0]}" + (f"; run {remedy}" if remedy else ""))


# A checkout of a revision, away from the user's repository, whose files are only read.


_Files = dict[str, str]  # the digest of each file, by its path
_FILES = Path(".git", "ddp_perf_files.json")
_WITHOUT_SETTINGS = {
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "LC_ALL": "C",
}
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
    if problem := _git(directory, "checkout", "--quiet", "--detach", commit):
        raise SideError(
            f"{commit[:12]}: cannot be checked out: {problem}; in a partial clone fetch its files"
            " with `git fetch --refetch --filter=blob:limit=1t`"
        )


def _apply(patch: str, directory: Path) -> None:
    if problem := _git(directory, "apply", "--whitespace=nowarn", os.path.abspath(patch)):
        raise SideError(f"{patch}: does not fit its commit: {problem}")


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


def _git(directory: Path, *arguments: str) -> str | None:
    """Run git in the cache without the user's settings: no hook, filter or monitor is run.

    Return the last line of its error, or None.
    """
    settings = ("GIT_CONFIG", "GIT_TEMPLATE_DIR", "GIT_ATTR_SOURCE")
    others = {n: v for n, v in of_directory(os.environ).items() if not n.startswith(settings)}
    done = subprocess.run(
        ["git", "-c", "core.hooksPath=/dev/null", "-C", str(directory), *arguments],
        env={**others, **_WITHOUT_SETTINGS},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        errors="surrogateescape",
    )
    if done.returncode == 0:
        return None
    return (done.stderr.strip().splitlines() or [f"git {arguments[0]} failed"])[-1]
