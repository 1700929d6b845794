"""The commits between good and bad, as one line: each is followed by what came after it."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from ddp_perf.duel.sides.checkout import (
    Repository,
    answer_of_git,
    find_repository,
    resolve_commit,
)
from ddp_perf.errors import SideError
from ddp_perf.system.git import ask_git

_FIELDS = "%H%x1f%an%x1f%as%x1f%P%x1f%s"


class Commit(msgspec.Struct, frozen=True, kw_only=True):
    """A commit for people; or a version of torch, whose hash is its requirement."""

    hash: str
    name: str | None = None  # of a version
    author: str = ""
    date: str = ""  # ISO 8601, of the author
    subject: str = ""
    parents: tuple[str, ...] = ()

    @property
    def short(self) -> str:
        return self.name or self.hash[:12]


class CommitLine(msgspec.Struct, frozen=True, kw_only=True):
    """Good (place 0) and the commits after it up to bad (the last place)."""

    what: Literal["commit", "version"] = "commit"
    repository: str  # of versions: the project that is trained with them
    commits: tuple[Commit, ...]

    @property
    def length(self) -> int:
        """The place of bad, and the number of commits that may be to blame."""
        return len(self.commits) - 1

    @property
    def merges(self) -> int:
        """Merges that may be to blame. Each stands for all commits that it brought in."""
        return sum(len(commit.parents) > 1 for commit in self.commits[1:])

    @property
    def joins(self) -> bool:
        """True if good itself is not on the line, but was brought in by the first merge of it."""
        parents = self.commits[1].parents
        return bool(parents) and parents[0] != self.commits[0].hash


def commit_line(directory: Path, good: str, bad: str) -> CommitLine:
    """Return the first-parent line from good to bad. Raises SideError if there is none."""
    repository = find_repository(directory)
    first = _resolved(repository, "--good", good)
    last = _resolved(repository, "--bad", bad)
    if first == last:
        raise SideError(f"--good and --bad are the same commit {first[:12]}; give two that differ")
    if not _is_ancestor(repository, first, last):
        raise SideError(_unrelated(repository, first, last))
    after = set(
        answer_of_git(repository.top, "rev-list", "--ancestry-path", f"{first}..{last}").split()
    )
    line = _log(repository, "--first-parent", "--reverse", f"{first}..{last}")
    return CommitLine(
        repository=str(repository.top),
        commits=(
            *_log(repository, "--no-walk", first),
            *(commit for commit in line if commit.hash in after),
        ),
    )


def files_of_commit(line: CommitLine, place: int) -> list[str]:
    """Return the files that the commit changed since the one before it on the line."""
    pair = (commit.hash for commit in line.commits[place - 1 : place + 1])
    options = ("-r", "-z", "--no-renames", "--name-only")
    names = answer_of_git(Path(line.repository), "diff-tree", *options, *pair)
    return [name for name in names.split("\0") if name]


def _resolved(repository: Repository, option: str, revision: str) -> str:
    if revision == ".":
        raise SideError(f"{option}: . is the tree, not a commit; commit it, and give HEAD")
    try:
        return resolve_commit(repository, revision)
    except SideError as error:
        raise SideError(f"{option}: {error}") from None


def _is_ancestor(repository: Repository, first: str, last: str) -> bool:
    return ask_git(repository.top, "merge-base", "--is-ancestor", first, last).returncode == 0


def _unrelated(repository: Repository, first: str, last: str) -> str:
    what = f"--good {first[:12]} is not an ancestor of --bad {last[:12]}"
    if _is_ancestor(repository, last, first):
        return f"{what}, but a descendant: swap the two"
    base = ask_git(repository.top, "merge-base", first, last).stdout.strip()
    if not base:
        return f"{what}: they have no common history, so no commit between them is to blame"
    return f"{what}; both come from {base[:12]}: give --good {base[:12]}, if it is as fast"


def _log(repository: Repository, *what: str) -> tuple[Commit, ...]:
    found = answer_of_git(repository.top, "log", "-z", f"--format={_FIELDS}", *what)
    # A name may be in another encoding than UTF-8, which no report can show.
    text = found.encode("utf-8", "replace").decode("utf-8")
    rows = (row.split("\x1f", 4) for row in text.split("\0") if row)
    return tuple(
        Commit(
            hash=row[0],
            author=row[1],
            date=row[2],
            parents=tuple(row[3].split()),
            subject=row[4].strip(),
        )
        for row in rows
    )
