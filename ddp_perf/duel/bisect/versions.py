"""The versions of torch between good and bad: releases, or nightly builds of an index."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec
from packaging.version import InvalidVersion, Version

from ddp_perf.duel.bisect.commits import Commit, CommitLine
from ddp_perf.duel.bisect.result import BisectResult, CommitCulprit
from ddp_perf.duel.sides.interpreter import output_of, run_interpreter
from ddp_perf.duel.sides.requirements import parse_requirements
from ddp_perf.duel.sides.virtual_environment import installed, is_installed
from ddp_perf.errors import SideError

_COMPARE = "https://github.com/pytorch/pytorch/compare"
_NIGHTLY = "PIP_INDEX_URL=https://download.pytorch.org/whl/nightly/cu130"


def version_line(directory: Path, ends: str) -> CommitLine:
    """Return the versions of torch in ``GOOD..BAD``, in their order. Raises SideError.

    They are those that pip finds for this Python in its indexes. Of the builds of one version, that
    is taken whose local part is the one of BAD: ``+cu130``, say.
    """
    good, separator, bad = ends.partition("..")
    if not separator:
        raise SideError(f"--torch: {ends!r} is not GOOD..BAD, as in 2.11.0..2.13.0")
    first, last = _parsed(good), _parsed(bad)
    if first.local not in (None, last.local):
        raise SideError(f"--torch: the build of {good} is not that of {bad}; name one build")
    if first >= last:
        raise SideError(f"--torch: {good} is not before {bad}: name the faster, older one first")
    found = _known(is_nightly=first.is_prerelease or last.is_prerelease)
    # A build with a local part comes after the one without, and takes its place.
    of_bad = [version for version in sorted(found) if version.local in (None, last.local)]
    builds = {Version(version.public): version for version in of_bad}
    ends_of_line = tuple(Version(end.public) for end in (first, last))
    for end in ends_of_line:
        if end not in builds:
            raise SideError(f"--torch: {_why_missing(end, found)}")
    between = [build for at, build in builds.items() if ends_of_line[0] <= at <= ends_of_line[1]]
    return CommitLine(
        what="version",
        repository=str(directory.resolve()),
        commits=tuple(Commit(hash=f"torch=={version}", name=str(version)) for version in between),
    )


def _why_missing(end: Version, found: Sequence[Version]) -> str:
    others = sorted({f"+{one.local}" for one in found if Version(one.public) == end})
    if others:
        return f"torch=={end} has the builds {', '.join(others)}; write one of them in BAD"
    return (
        f"pip finds no torch=={end} for this Python; `pip index versions torch` lists what there"
        f" is, and {_NIGHTLY} has nightly builds"
    )


def _parsed(text: str) -> Version:
    try:
        return Version(text)
    except InvalidVersion:
        raise SideError(f"--torch: {text!r} is not a version, as in 2.13.0") from None


def _known(*, is_nightly: bool) -> list[Version]:
    """Return the versions that pip finds, each build for itself."""
    arguments = ["-m", "pip", "index", "versions", "torch", "--json"]
    done = run_interpreter(
        sys.executable,
        [*arguments, *(["--pre"] if is_nightly else [])],
        os.environ,
        failure="pip cannot list the versions of torch",
    )
    try:
        listed = json.loads(done.stdout)["versions"]
    except (ValueError, KeyError, TypeError):
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise SideError(
            f"--torch: needs pip 25.1 or later ({sys.executable} -m ensurepip --upgrade, then -m"
            f" pip install --upgrade pip) and an index with torch: {last}"
        ) from None
    return [Version(version) for version in listed]


def with_comparisons(result: BisectResult) -> BisectResult:
    """Return the result with the address of the commits between each culprit and the one before.

    Both were launched, so they are installed: each knows its commit.
    """
    if result.line.what == "commit":
        return result
    culprits = tuple(
        msgspec.structs.replace(one, compare=_commits_between(one)) for one in result.culprits
    )
    return msgspec.structs.replace(result, culprits=culprits)


def _commits_between(culprit: CommitCulprit) -> str | None:
    ends = culprit.before.hash, culprit.commits[-1].hash
    if not all(is_installed(parse_requirements(end)) for end in ends):
        return None  # the cache has dropped one: no answer waits for a download
    try:
        first, last = map(_git_version, ends)
    except SideError:
        return None
    return f"{_COMPARE}/{first}...{last}"


def _git_version(requirement: str) -> str:
    code = "import torch.version; print(torch.version.git_version)"
    with installed(parse_requirements(requirement), lambda _: None) as interpreter:
        failure = "does not tell its commit"
        return output_of(interpreter, code, os.environ, failure=failure).strip()
