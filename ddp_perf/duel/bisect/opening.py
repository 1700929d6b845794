"""A place of the line that is searched, a commit or a version of torch, made ready to launch."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
from packaging.version import InvalidVersion, Version

from ddp_perf.config.loading import Overrides, find_suites, load_cases
from ddp_perf.core.case import Case
from ddp_perf.duel.bisect.commits import Commit, CommitLine, files_of_commit
from ddp_perf.duel.bisect.result import BisectResult, CommitCulprit
from ddp_perf.duel.cases import alike
from ddp_perf.duel.open_sides import SideLauncher, side_launcher
from ddp_perf.duel.sides.preparing import foreign_script, parse_side, prepare
from ddp_perf.duel.sides.virtual_environment import (
    installed,
    is_installed,
    output_of,
    parse_requirements,
    run_interpreter,
)
from ddp_perf.duel.touched import CaseSources, Project, sources_of, touched_cases
from ddp_perf.errors import ConfigError, SideError, nearest_or_all
from ddp_perf.system.capacity import Capacity

# The versions of torch between good and bad: releases, or nightly builds of an index.


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


# The commits that can be launched now: a few servers, of good, bad, and the last ones asked.


class CommitTurn(NamedTuple):
    """A commit that is ready to launch."""

    launcher: SideLauncher
    case: Case  # as the commit has it, measured as bad is
    import_paths: tuple[str, ...]
    suites: tuple[Path, ...] = ()  # the files of its cases; (): unknown


Opener = Callable[[Commit], contextlib.AbstractContextManager[CommitTurn]]
_MOST = 2  # servers beside those of good and bad: each one holds torch in memory


class _Open(NamedTuple):
    turn: CommitTurn
    stack: contextlib.ExitStack


class CommitTurns:
    """Opens a commit when it is asked, and closes the one that was asked longest ago.

    ``opener`` makes a commit ready to launch, and raises DdpPerfError if it cannot be. All are
    measured as bad is: with as many steps, whatever their suites schedule.
    """

    def __init__(self, line: CommitLine, opener: Opener) -> None:
        self._line, self._opener = line, opener
        self._open: dict[int, _Open] = {}  # the one asked last is the last

    def turn(self, place: int) -> CommitTurn:
        """Return a turn of the commit. Raises what the opener raises."""
        bad = self._opened(self._line.length)
        turn = self._opened(place)
        return turn._replace(case=alike(turn.case, bad.case))

    def _opened(self, place: int) -> CommitTurn:
        if place in self._open:
            self._open[place] = self._open.pop(place)
        else:
            self._close_oldest(place)
            with contextlib.ExitStack() as stack:
                turn = stack.enter_context(self._opener(self._line.commits[place]))
                self._open[place] = _Open(turn, stack.pop_all())
        return self._open[place].turn

    def close(self) -> None:
        with contextlib.ExitStack() as stack:
            for each in self._open.values():
                stack.push(each.stack)
            self._open.clear()

    def _close_oldest(self, place: int) -> None:
        """Make room for a commit that is neither good nor bad."""
        others = [asked for asked in self._open if asked not in (0, self._line.length)]
        if place not in (0, self._line.length) and len(others) >= _MOST:
            self._open.pop(others[0]).stack.close()


# A commit, or a version of torch, is made ready to launch, and its suites have the case.


_CONFIGS = "bench_configs"


@contextlib.contextmanager
def open_commit(
    commit: Commit,
    *,
    root: Path,
    case_id: str,
    overrides: Overrides,
    capacity: Capacity,
    on_progress: Callable[[str], None],
) -> Iterator[CommitTurn]:
    """Yield the commit, ready to launch the case, and close its servers at the end.

    Raises SideError if it cannot be checked out or installed, ConfigError if it lacks the case, or
    if this machine cannot run it.
    """
    side = parse_side(commit.hash, "B", root)
    with prepare(side, root, on_progress=on_progress) as prepared:
        paths = (str(prepared.root),)
        suites = find_suites(prepared.root / _CONFIGS)
        case = _case(suites, case_id, overrides, paths)
        if (obstacle := foreign_script(case, prepared) or capacity.obstacle(case)) is not None:
            raise ConfigError(f"{case.id} {obstacle}")
        # Which files a version of torch changes is not known: none of them is innocent.
        own = tuple(suites) if prepared.side.kind == "revision" else ()
        with contextlib.closing(side_launcher(prepared)) as launcher:
            yield CommitTurn(launcher, case, paths, own)


def _case(
    suites: Sequence[Path], case_id: str, overrides: Overrides, import_paths: tuple[str, ...]
) -> Case:
    cases = load_cases(suites, overrides, import_paths)
    found = next((case for case in cases if case.id == case_id), None)
    if found is None:
        near = nearest_or_all(case_id, sorted({case.id for case in cases}))
        raise ConfigError(f"no suite of {_CONFIGS}/ has the case {case_id}{near}")
    return found


# The commits that cannot be to blame, since they change nothing that the case reads.


def innocent_places(line: CommitLine, good: CommitTurn, bad: CommitTurn) -> frozenset[int]:
    """Return the places of the commits that change no file that the case reads at good or at bad.

    Whatever makes bad slower than good is in such a file. A file that the case reads only between
    them is not in bad. Raises SideError if the repository cannot be read.
    """
    if not (good.suites and bad.suites):
        return frozenset()
    sources = {("good", ""): _sources(good), ("bad", ""): _sources(bad)}
    return frozenset(
        place
        for place in range(1, line.length + 1)
        if not touched_cases(sources, files_of_commit(line, place)).touched
    )


def _sources(turn: CommitTurn) -> CaseSources:
    root = turn.suites[0].parent
    project = Project(root=root, suites=turn.suites, import_paths=turn.import_paths)
    return sources_of([turn.case], project)[turn.case.key]
