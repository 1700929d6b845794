"""The text that a user types for a side becomes a Side, or is refused."""

from __future__ import annotations

import re
from pathlib import Path

from ddp_perf.duel.sides.interpreter import parse_interpreter
from ddp_perf.duel.sides.repository import check_files, find_repository, full_name, resolve_commit
from ddp_perf.duel.sides.requirements import parse_requirements
from ddp_perf.duel.sides.variables import parse_variables
from ddp_perf.duel.values import Side, SideName
from ddp_perf.errors import SideError
from ddp_perf.system.git import head_of

PLACEHOLDER = "{command}"
_PREFIXES = ("env", "python", "command")
_SHORT = 7  # digits of a commit, for people
_LONGEST = 60  # characters of a command in a label


def parse_side(text: str, name: SideName, root: Path) -> Side:
    """Return the side that ``text`` names, for the project in ``root``.

    Nothing is written and nothing is launched. Raises SideError.
    """
    text = text.strip()
    prefix, colon, rest = text.partition(":")
    if text == ".":
        return _tree(name, root)
    if colon and prefix in _PREFIXES:
        return _prefixed(text, name, prefix, rest.strip())
    if "==" in text:
        label = ", ".join(map(str, parse_requirements(text)))
        return Side(name=name, spec=text, kind="packages", label=label)
    return _revision(text, name, root)


def _tree(name: SideName, root: Path) -> Side:
    head = head_of(root)
    if head is None:
        return Side(name=name, spec=".", kind="tree", label="the tree")
    changes = ", with changes" if head.changed else ""
    label = f"the tree ({head.commit[:_SHORT]}{changes})"
    return Side(
        name=name, spec=".", kind="tree", label=label, commit=head.commit, changed=head.changed
    )


def _prefixed(text: str, name: SideName, prefix: str, rest: str) -> Side:
    if prefix == "env":
        parse_variables(rest)
        return Side(name=name, spec=text, kind="env", label=rest)
    if prefix == "python":
        return Side(name=name, spec=text, kind="python", label=parse_interpreter(rest))
    if PLACEHOLDER not in rest:
        raise SideError(
            f"{text}: lacks {PLACEHOLDER}, in whose place the ranks' server is started;"
            f" write 'command: docker run … {PLACEHOLDER}'"
        )
    label = rest if len(rest) <= _LONGEST else f"{rest[: _LONGEST - 1]}…"
    return Side(name=name, spec=text, kind="command", label=label)


def _revision(text: str, name: SideName, root: Path) -> Side:
    _refuse_other_kinds(text)
    repository = find_repository(root)
    commit = resolve_commit(repository, text)
    if (root / text).exists() or Path(text).exists():
        raise SideError(
            f"{text}: both a revision and a file; for the revision write"
            f" {full_name(repository, text)}"
        )
    short = commit[:_SHORT]
    label = short if commit.startswith(text.lower()) else f"{text} ({short})"
    check_files(repository, commit, label)
    return Side(name=name, spec=text, kind="revision", label=label, commit=commit)


def _refuse_other_kinds(text: str) -> None:
    """Raise SideError for what is no revision, but nearly another kind of side."""
    if not text or text.startswith("-"):
        raise SideError(f"{text!r}: not a side; name a revision, or . for the tree as it is")
    if re.match(r"[A-Z][A-Z0-9_]*=", text):
        raise SideError(f"{text}: for a variable write env:{text}")
    if re.match(r"[\w.-]+\s*(=|[<>]=?|[~!]=)\s*\d", text):
        raise SideError(f"{text}: a side needs exact versions; write torch==2.11.0")
    if Path(text).name.startswith("python") and Path(text).is_file():
        raise SideError(f"{text}: for an interpreter write python:{text}")
