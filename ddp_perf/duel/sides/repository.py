"""The git repository of the user's project. It is only read."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from ddp_perf.errors import SideError, did_you_mean
from ddp_perf.system.git import ask_git

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
    lines = _answer(root, "rev-parse", *formats).splitlines()
    top, objects, object_format = lines
    return Repository(
        top=Path(top),
        prefix=_answer(root, "rev-parse", "--show-prefix").strip("\n/"),
        objects=(root / objects).resolve(),
        object_format=object_format,
    )


def _check_version(root: Path) -> None:
    """Raise SideError for a git that would run the user's hooks and filters in a checkout."""
    shown = _answer(root, "version").split()[2]  # "git version 2.39.5 (Apple Git-154)"
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
    if _answer(repository.top, "rev-parse", "--is-shallow-repository").strip() == "true":
        raise SideError(
            f"{revision}: not in {repository.top}, a shallow clone: fetch it with"
            " `git fetch --unshallow` (in CI: fetch-depth: 0)"
        )
    references = _answer(
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
    tree = _answer(repository.top, "ls-tree", "-r", "-z", "--full-tree", commit).split("\0")
    submodules = [entry.partition("\t")[2] for entry in tree if entry.startswith("160000 ")]
    if submodules:
        raise SideError(
            f"{label}: has the submodule {submodules[0]}, whose files would be missing; commit its"
            " files instead (git subtree), or depend on it as an installed package"
        )
    inside = f"{repository.prefix}/" if repository.prefix else ""
    if not any(entry.partition("\t")[2].startswith(inside) for entry in tree):
        raise SideError(f"{label}: has no directory {repository.prefix}; run in one that it has")


def _answer(directory: Path, *arguments: str) -> str:
    """Return what git writes. Raises SideError."""
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
