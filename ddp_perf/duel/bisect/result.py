"""The result of a search: the commits to blame, those that were asked, and all probabilities."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Literal

import msgspec

from ddp_perf.core.duel import PairedVerdict
from ddp_perf.core.launch import LaunchFailure
from ddp_perf.duel.bisect.belief import Level, levels, step_ratios
from ddp_perf.duel.bisect.commits import Commit, CommitLine
from ddp_perf.duel.bisect.log import CommitLaunch
from ddp_perf.duel.bisect.search import Standing
from ddp_perf.duel.bisect.turns import CommitTurns
from ddp_perf.errors import DdpPerfError
from ddp_perf.work.changes import work_changes
from ddp_perf.work.counting import count_case
from ddp_perf.work.values import WorkChange


class AskedCommit(msgspec.Struct, frozen=True, kw_only=True):
    """A commit that was launched, or could not be."""

    place: int  # 0: good
    commit: Commit
    launches: int
    level: Level | None = None  # against good; None: good itself, or too few launches
    failure: str | None = None  # why it cannot be launched


class Culprit(msgspec.Struct, frozen=True, kw_only=True):
    """One step: adjacent commits, one of which made it. Nearly always it is one commit."""

    commits: tuple[Commit, ...]
    before: Commit  # the last one that was not slower
    effect: Level  # on the metric that decides, from all launches
    untestable: int = 0  # of the commits: the others cannot be told from them
    work: tuple[WorkChange, ...] | None = None  # what its step does otherwise; None: not counted
    uncounted: str | None = None  # why it was not counted


class BisectResult(msgspec.Struct, frozen=True, kw_only=True):
    """Everything about a search, finished or not."""

    schema_version: Literal[1] = 1
    outcome: Literal["found", "not slower", "undecided"]
    case_id: str
    line: CommitLine
    confidence: float
    metric: str
    why: str  # this metric decides
    duel: PairedVerdict  # of bad against good
    probability: float | None = None  # that the culprits, or else the suspects, have every step
    culprits: tuple[Culprit, ...] = ()  # one; two if the slow-down has two steps
    suspects: tuple[Commit, ...] = ()  # undecided: the fewest adjacent ones with the confidence
    two_steps: float | None = None  # probability of two steps
    chances: tuple[float, ...] = ()  # of each commit after good: that it changed the level
    asked: tuple[AskedCommit, ...] = ()
    launches: int
    wall_s: float  # of all launches, over all runs of the command
    log: str


def bisect_result(
    now: Standing,
    line: CommitLine,
    launches: Sequence[CommitLaunch],
    *,
    case_id: str,
    confidence: float,
    log: str,
) -> BisectResult:
    """Return the result, without counts of work."""
    found = levels(now.readings)
    asked = _asked(line, launches, found, now.untestable)
    result = BisectResult(
        outcome=now.outcome,
        case_id=case_id,
        line=line,
        confidence=confidence,
        metric=now.metric,
        why=now.why,
        duel=now.duel,
        asked=asked,
        launches=sum(launch.failure is None for launch in launches),
        wall_s=sum(launch.wall_s for launch in launches),
        log=log,
    )
    if now.belief is None:
        return result
    suspects, probability = now.belief.smallest(confidence)
    if now.suspects:
        probability = now.belief.chance_of(now.suspects)
    return msgspec.structs.replace(
        result,
        probability=probability,
        culprits=_culprits(now, line),
        suspects=() if now.suspects else line.commits[suspects.first : suspects.last + 1],
        two_steps=now.belief.steps(),
        chances=tuple(now.belief.chances()),
    )


def _asked(
    line: CommitLine,
    launches: Sequence[CommitLaunch],
    found: dict[int, Level],
    untestable: dict[int, str],
) -> tuple[AskedCommit, ...]:
    often = Counter(launch.place for launch in launches if launch.failure is None)
    return tuple(
        AskedCommit(
            place=place,
            commit=line.commits[place],
            launches=often[place],
            level=found.get(place),
            failure=untestable.get(place),
        )
        for place in sorted(often.keys() | untestable.keys())
    )


def _culprits(now: Standing, line: CommitLine) -> tuple[Culprit, ...]:
    effects = step_ratios(now.readings, now.suspects)
    return tuple(
        Culprit(
            commits=line.commits[each.first : each.last + 1],
            before=line.commits[each.first - 1],
            effect=effect,
            untestable=sum(each.first <= place <= each.last for place in now.untestable),
        )
        for each, effect in zip(now.suspects, effects, strict=True)
    )


def with_work(culprit: Culprit, line: CommitLine, turns: CommitTurns) -> Culprit:
    """Return the culprit with what its step does otherwise than the step before it."""
    places = [line.commits.index(each) for each in (culprit.before, culprit.commits[-1])]
    steps = []
    try:
        for turn in map(turns.turn, places):
            step = count_case(turn.case, turn.launcher, turn.import_paths)
            if isinstance(step, LaunchFailure):
                return msgspec.structs.replace(culprit, uncounted=str(step))
            steps.append(step)
    except DdpPerfError as error:
        return msgspec.structs.replace(culprit, uncounted=str(error))
    return msgspec.structs.replace(culprit, work=work_changes(*steps))
