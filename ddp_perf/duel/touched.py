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

Kind = Literal["harmless", "source", "data", "everything"]

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
# Directories of services, of editors, of caches and of this package, whose files no rank reads, or
# only together with their sources.
_HARMLESS_DIRECTORIES = {
    *("baselines", "artifacts", "__pycache__", ".pytest_cache", ".hypothesis"),
    *(".github", ".gitlab", ".circleci", ".vscode", ".idea"),
}
_HARMLESS_NAMES = (
    *("LICENSE*", "CODEOWNERS", "CHANGELOG*", "README*", ".git*"),
    *(".editorconfig", ".pre-commit-config.yaml", ".mailmap", ".dockerignore"),
)
# Files that are documents here, and may be data of a workload in any other directory.
_DOCUMENT_DIRECTORIES = ("docs", "doc")
_DOCUMENTS = {
    *(".md", ".rst", ".html", ".css", ".png", ".jpg", ".jpeg", ".svg", ".gif", ".pdf", ".ipynb"),
}
# Directories whose files only the user's code may read.
_BESIDE_THE_CODE = {"docs", "doc", "tests", "test", "ci"}
_PACKAGE = "ddp_perf"  # ranks run its code, whatever they train


class CaseSources(msgspec.Struct, frozen=True, kw_only=True):
    """The files of the project that a case reads, by their paths from the repository's root."""

    suite: str  # the suite file
    suites: frozenset[str] = frozenset()  # other suite files, which the case does not read
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
        kind = "harmless" if file in case.suites else kind_of(file)
        if kind == "everything":
            yield f"{file} may change every case"
        elif kind == "data" and (case.is_script or ":" in case.workload):
            yield f"{file} may be data, and {case.workload} may read it"
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
    """Return whether a file that no workload or script imports or names touches cases.

    It touches none ("harmless"), or every one. A "source" of Python touches none either, if all
    imports are known, and "data" those with code of the user, which may read it.
    """
    path = PurePosixPath(file)
    around = {*path.parts[:-1]}
    if _PACKAGE in around or _is_named(path, _ENVIRONMENT_NAMES):
        return "everything"
    beside = bool(around & _BESIDE_THE_CODE)
    if path.name == "conftest.py" and not beside:
        return "everything"  # it may set variables, which ranks inherit
    if path.suffix == ".py":
        return "source"
    in_docs = not around or path.parts[0] in _DOCUMENT_DIRECTORIES
    if in_docs and path.suffix in _DOCUMENTS:
        return "harmless"
    if around & _HARMLESS_DIRECTORIES or _is_named(path, _HARMLESS_NAMES):
        return "harmless"
    return "data" if beside or path.suffix in _DOCUMENTS else "everything"


def _is_named(path: PurePosixPath, patterns: Iterable[str]) -> bool:
    return any(fnmatch.fnmatchcase(path.name, pattern) for pattern in patterns)
