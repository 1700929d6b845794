"""The values of a duel: its sides, its pairs of launches, what was found, and its results file."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Set
from pathlib import Path
from typing import Literal

import msgspec

from ddp_perf.core.case import Case
from ddp_perf.core.environment import Environment
from ddp_perf.core.launch import LaunchFailure, LaunchResult
from ddp_perf.core.verdict import DuelOutcome, Explanation, PairedVerdict
from ddp_perf.core.work import Site
from ddp_perf.errors import ResultsError
from ddp_perf.launch.launcher import Runtime
from ddp_perf.system.files import VersionedJson, write_files
from ddp_perf.work.values import WorkChange

# The values of a duel: its sides, its pairs of launches, and what was found.


SideName = Literal["A", "B"]  # A is the older, B is judged
SideKind = Literal["tree", "revision", "env", "python", "packages", "command"]


class Side(msgspec.Struct, frozen=True, kw_only=True):
    """One side of a duel as the user named it, and what that resolved to."""

    name: SideName
    spec: str  # as typed: "main", "env:OMP_NUM_THREADS=2", "torch==2.11.0"
    kind: SideKind
    label: str  # for people: "main (3f2a1c9)"
    commit: str | None = None  # full hash of a revision; of the tree: HEAD, if it is in git
    changed: bool | None = None  # the tree has edits that are not committed; None: unknown
    patch: str | None = None  # a file: what a stored session's code had beyond the commit


class PreparedSide(msgspec.Struct, frozen=True, kw_only=True):
    """A side that is ready to launch: its files are checked out, its packages are installed.

    Only ranks run in it. ``package`` is the directory from which they import ddp_perf: that of the
    driver, unless the revision has its own.
    """

    side: Side
    root: Path  # of the project on this side: its suites are in it, and ranks import from it
    interpreter: str  # of the ranks
    environ: Mapping[str, str]  # of the servers, whole
    package: Path
    variables: dict[str, str] = {}  # those of an "env" side, which are also in `environ`
    command: str | None = None  # "docker run … {command}": it starts the server of the ranks
    added_paths: tuple[str, ...] = ()  # further places to import from, as pytest's `pythonpath`

    @property
    def import_paths(self) -> tuple[str, ...]:
        """The directories from which ranks first import a user's workload."""
        return tuple(dict.fromkeys([str(self.root), *self.added_paths]))


class SideCase(msgspec.Struct, frozen=True, kw_only=True):
    """A case as each side has it. Both have one id; their options may differ."""

    a: Case
    b: Case

    @property
    def id(self) -> str:
        return self.b.id

    def of(self, side: SideName) -> Case:
        return self.a if side == "A" else self.b


class Pair(msgspec.Struct, frozen=True, kw_only=True):
    """A launch of each side, one right after the other, in random order."""

    case_id: str
    block: int
    first: SideName
    a: LaunchResult
    b: LaunchResult


class SideFailure(msgspec.Struct, frozen=True, kw_only=True):
    """A launch of one side that failed. Its case is not launched again."""

    side: SideName
    failure: LaunchFailure


class MetricDuel(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict on one metric of one case, with the figures of both sides."""

    case_id: str
    metric: str
    verdict: PairedVerdict
    a: float | None = None  # median over the launches
    b: float | None = None
    tolerance: float  # within which sides are EQUIVALENT, as a fraction
    decides: bool  # False: it is shown, and another metric decides in its place
    why: str | None = None  # it does not decide, or decides in place of another


class PowerEstimate(msgspec.Struct, frozen=True, kw_only=True):
    """The slow-down that pairs of a case can show here: from launches of side A alone (A/A)."""

    case_id: str
    metric: str
    launches: int
    spread: float  # sd of the log ratio of a pair
    minimum_detectable: float | None  # in the whole budget, nine times in ten
    pairs: int  # that the budget has room for


class CaseDuel(msgspec.Struct, frozen=True, kw_only=True):
    """Everything about one case."""

    cases: SideCase
    pairs: tuple[Pair, ...] = ()
    aa: tuple[LaunchResult, ...] = ()  # launches of side A before the pairs, which show the spread
    failures: tuple[SideFailure, ...] = ()
    power: tuple[PowerEstimate, ...] = ()
    metrics: tuple[MetricDuel, ...] = ()
    work: tuple[WorkChange, ...] | None = None  # what B's step does otherwise; None: not counted
    lines: tuple[Site, ...] = ()  # edited ones of B that do more than A's; the costliest first
    uncounted: str | None = None  # why it was not counted
    options: tuple[str, ...] = ()  # of the suite that differ: "ddp.bucket_cap_mb: 25 → 5"
    structure: str | None = None  # how the structures of the measured steps differ
    explanation: Explanation | None = None  # by the terms of the step, of a case that is SLOWER

    @property
    def id(self) -> str:
        return self.cases.id

    @property
    def outcome(self) -> DuelOutcome:
        """The worst outcome of the metrics that decide; UNDECIDED without one, or after a failure.

        A failed launch of B is worse than any: see `broken`.
        """
        found = {metric.verdict.outcome for metric in self.metrics if metric.decides}
        return _worst(found if found and not self.failures else {*found, DuelOutcome.UNDECIDED})

    @property
    def broken(self) -> bool:
        """True if B failed, and A did not."""
        return {failure.side for failure in self.failures} == {"B"}


class MissingSide(msgspec.Struct, frozen=True, kw_only=True):
    """A case that one side lacks, or that cannot run here. It never counts as a pass."""

    case_id: str
    reason: str
    unfit: bool = False  # this machine cannot run it


class SideConditions(msgspec.Struct, frozen=True, kw_only=True):
    """The software of a side."""

    runtime: Runtime
    environment: Environment
    packages: dict[str, str] = {}  # versions of installed distributions, by name


class Duel(msgspec.Struct, frozen=True, kw_only=True):
    """A whole duel: it is complete, or ended early and has what was finished."""

    a: Side
    b: Side
    began: str  # ISO 8601, UTC
    wall_s: float
    measured_s: float | None = None  # of wall_s: until the counts began
    budget_s: float
    false_alarm_rate: float  # of any SLOWER, and as much of any FASTER, if nothing differs
    alpha: float  # of the verdict on the time of a case: its share of that rate
    cases: tuple[CaseDuel, ...]
    missing: tuple[MissingSide, ...] = ()
    left_out: tuple[MissingSide, ...] = ()  # that nobody named: they do not count
    untouched: tuple[MissingSide, ...] = ()  # that no changed file can touch: likewise
    conditions: dict[SideName, SideConditions] = {}
    differences: tuple[str, ...] = ()  # of the conditions: "torch: 2.11.0 → 2.13.0"
    repeat: tuple[str, ...] = ()  # options that the same duel needs again: "--config=mine.yaml"
    command: str | None = None  # that runs it again, if that is not ddp-perf duel
    needed_s: float | None = None  # a budget with room for all cases, if this one had none
    complete: bool = True

    @property
    def outcome(self) -> DuelOutcome:
        """SLOWER if a case is, else UNDECIDED if one is, lacks a side, or failed."""
        found = {case.outcome for case in self.cases}
        if self.missing or not (self.cases or self.untouched) or not self.complete:
            found.add(DuelOutcome.UNDECIDED)
        return _worst(found)

    @property
    def broken(self) -> bool:
        """True if a case works on side A, and fails on side B."""
        return any(case.broken for case in self.cases)


def _worst(found: Set[DuelOutcome]) -> DuelOutcome:
    order = (DuelOutcome.SLOWER, DuelOutcome.UNDECIDED, DuelOutcome.FASTER)
    return next((outcome for outcome in order if outcome in found), DuelOutcome.EQUIVALENT)


# The results file of a duel: everything that was measured, so that nothing is lost.


SCHEMA_VERSION = 1


class DuelFile(msgspec.Struct, frozen=True, kw_only=True):
    """The results of one duel."""

    schema_version: int = SCHEMA_VERSION
    duel: Duel


_FORMAT = VersionedJson(
    schema=DuelFile,
    version=SCHEMA_VERSION,
    kind="the result of a duel",
    error=ResultsError,
    remedy="run ddp-perf duel again",
)


def write_duel(path: Path, duel: Duel) -> None:
    """Replace ``path`` by this duel. Raises ResultsError, which names the file."""
    write_files(path.parent, [(path.name, msgspec.json.encode(DuelFile(duel=duel)))])


def read_duel(path: Path) -> Duel:
    """Read what `write_duel` wrote.

    Raises ResultsError, which names the file, the field and the remedy.
    """
    return _FORMAT.read(path).duel


def result_path(directory: Path, duel: Duel) -> Path:
    """Return a file for a duel, named by the time at which the duel began, that is not there yet.

    Another duel may have begun in the same second.
    """
    began = duel.began[:19].replace(":", "")
    names = (began if number == 1 else f"{began}-{number}" for number in itertools.count(1))
    return next(path for name in names if not (path := directory / f"{name}.json").exists())
