"""The cases of which changed files can change a step: the others need no duel.

A case is left out only if it is certain that nothing it reads has changed. All that its workload
or script may import is searched in the source, without running it; what the source leaves open
counts as changed.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Literal

import msgspec

Kind = Literal["harmless", "source", "everything"]

# Files that change the packages or the settings of every rank.
_ENVIRONMENT_NAMES = (
    *(
        "*requirements*.txt",
        "constraints*.txt",
        "*.lock",
        "pyproject.toml",
        "setup.py",
        "setup.cfg",
    ),
    *("environment*.y*ml", "Pipfile", "pytest.ini", "tox.ini", ".python-version"),
)
# Directories whose files no rank reads, unless its workload or script does.
_HARMLESS_DIRECTORIES = {
    *("docs", "doc", "tests", "test", "baselines", "artifacts", "ci"),
    *(".github", ".gitlab", ".circleci", ".vscode", ".idea"),
}
_HARMLESS_NAMES = (
    *("*.md", "*.rst", "*.png", "*.jpg", "*.jpeg", "*.svg", "*.gif", "*.pdf", "*.ipynb"),
    *("test_*.py", "*_test.py", "LICENSE*", "CODEOWNERS", "CHANGELOG*", "README*", ".git*"),
    *(".editorconfig", ".pre-commit-config.yaml", ".mailmap", ".dockerignore"),
)
_PACKAGE = "ddp_perf"  # ranks run its code, whatever they train


class CaseSources(msgspec.Struct, frozen=True, kw_only=True):
    """The files of the project that a case reads, by their paths from the repository's root."""

    suite: str  # the suite file
    workload: str  # or script, as the suite states it
    is_script: bool = False
    imported: frozenset[str] = frozenset()  # may be imported; also those that do not exist
    named: frozenset[str] = frozenset()  # files and directories that arguments may name
    unknown: str | None = None  # why they cannot all be known


class Touched(msgspec.Struct, frozen=True, kw_only=True):
    """The reason why each case can be touched, or why it cannot, by the case's key."""

    touched: dict[tuple[str, str], str]
    left_out: dict[tuple[str, str], str]


def touched_cases(
    sources: Mapping[tuple[str, str], CaseSources], changed: Sequence[str]
) -> Touched:
    """Return which cases the ``changed`` files can touch; ``sources`` has those of each case.

    Paths have "/" and begin at the repository's root.
    """
    touched, left_out = {}, {}
    for key, case in sources.items():
        reason = next(_reasons(case, changed), None)
        if reason is not None:
            touched[key] = reason
        else:
            left_out[key] = _why_not(case, changed)
    return Touched(touched=touched, left_out=left_out)


def _reasons(case: CaseSources, changed: Iterable[str]) -> Iterator[str]:
    """Yield why the changed files can touch the case: the certain reasons first."""
    files = list(changed)
    if case.suite in files:
        yield f"{case.suite} has its suite"
    reads = "script reads" if case.is_script else "workload imports"
    yield from (f"its {reads} {file}" for file in files if _is_read(file, case))
    for file in files:
        kind = kind_of(file)
        if kind == "everything" and not _is_suite_file(file, case):
            yield f"{file} may change every case"
        elif kind == "source" and case.unknown is not None:
            yield f"{file} changed, and {case.unknown}"


def _why_not(case: CaseSources, changed: Sequence[str]) -> str:
    if not changed:
        return "nothing changed"
    own = ""
    if case.is_script:
        own = f", and {case.workload} reads none of them"
    elif ":" in case.workload:
        own = f", and {case.workload} imports none of them"
    return f"no changed file can touch it: none is its suite file{own}"


def _is_read(file: str, case: CaseSources) -> bool:
    """Return whether the file is imported, or an argument names it or a directory around it."""
    path = PurePosixPath(file)
    return file in case.imported or any(str(one) in case.named for one in (path, *path.parents))


def kind_of(file: str) -> Kind:
    """Return whether a file that no workload or script reads touches no case, or every case.

    A "source" of Python touches none either, if all imports are known.
    """
    path = PurePosixPath(file)
    if _PACKAGE in path.parts[:-1] or _is_named(path, _ENVIRONMENT_NAMES):
        return "everything"
    harmless = _HARMLESS_DIRECTORIES & {*path.parts[:-1]} or _is_named(path, _HARMLESS_NAMES)
    if path.name == "conftest.py" and not harmless:
        return "everything"  # it may set variables, which ranks inherit
    if path.suffix == ".py":
        return "source"
    return "harmless" if harmless else "everything"


def _is_named(path: PurePosixPath, patterns: Iterable[str]) -> bool:
    return any(fnmatch.fnmatchcase(path.name, pattern) for pattern in patterns)


def _is_suite_file(file: str, case: CaseSources) -> bool:
    """Return whether the file lies beside the case's suite file, and so is another suite's."""
    path = PurePosixPath(file)
    beside = path.parent == PurePosixPath(case.suite).parent
    return beside and path.suffix in {".yaml", ".yml", ".json"}
