"""The result of a search: the commits to blame, those that were asked, and all probabilities."""

from __future__ import annotations

from collections import Counter
from typing import Literal

import msgspec

from ddp_perf.core.verdict import PairedVerdict
from ddp_perf.core.work import StepWork
from ddp_perf.duel.bisect.commits import Commit, CommitLine
from ddp_perf.duel.bisect.search import (
    CONFIDENCE,
    Belief,
    Level,
    Question,
    SearchState,
    Suspects,
    levels,
    place_of,
    search_state,
    step_ratios,
)
from ddp_perf.session.measure.experiment import History
from ddp_perf.work.changes import work_changes
from ddp_perf.work.values import WorkChange


class AskedCommit(msgspec.Struct, frozen=True, kw_only=True):
    """A commit that was launched, or could not be."""

    place: int  # 0: good
    commit: Commit
    launches: int
    level: Level | None = None  # against good; None: good itself, or too few launches
    failure: str | None = None  # why it cannot be launched


class CommitCulprit(msgspec.Struct, frozen=True, kw_only=True):
    """One step: adjacent commits, one of which made it. Nearly always it is one commit."""

    commits: tuple[Commit, ...]
    before: Commit  # the last one that was not slower
    effect: Level | None  # on the metric that decides, from all launches; None: there is none
    untestable: int = 0  # of the commits: the others cannot be told from them
    work: tuple[WorkChange, ...] | None = None  # what its step does otherwise; None: not counted
    uncounted: str | None = None  # why it was not counted
    compare: str | None = None  # of a version: where the commits since the one before are listed


class BisectResult(msgspec.Struct, frozen=True, kw_only=True):
    """Everything about a search, finished or not."""

    schema_version: Literal[1] = 1
    outcome: Literal["found", "not slower", "undecided", "untouched"]
    case_id: str
    line: CommitLine
    confidence: float
    metric: str
    why: str  # this metric decides
    duel: PairedVerdict  # of bad against good
    probability: float | None = None  # that the culprits, or else the suspects, have every step
    culprits: tuple[CommitCulprit, ...] = ()  # one; two if the slow-down has two steps
    suspects: tuple[Commit, ...] = ()  # undecided: the fewest adjacent ones with the confidence
    two_steps: float | None = None  # probability of two steps
    chances: tuple[float, ...] = ()  # of each commit after good: that it changed the level
    innocent: tuple[Commit, ...] = ()  # they change nothing that the case reads
    counted: tuple[Commit, ...] = ()  # the work of the step grows most between these two
    asked: tuple[AskedCommit, ...] = ()
    launches: int
    wall_s: float  # of all launches, over all runs of the command
    log: str


def bisect_result(
    question: Question,
    line: CommitLine,
    launches: History,
    *,
    case_id: str,
    log: str,
) -> BisectResult:
    """Return what is known without a launch, or what the launches show, without counts of work."""
    known = line.what == "commit" and len(question.suspects) < 2
    now = search_state(question, () if known else launches, ended=True)
    found = levels(now.readings)
    result = BisectResult(
        outcome=now.outcome,
        case_id=case_id,
        line=line,
        confidence=CONFIDENCE,
        metric=now.metric,
        why=now.why,
        duel=now.duel,
        innocent=tuple(line.commits[place] for place in sorted(question.innocent)),
        counted=tuple(line.commits[place] for place in sorted(question.first)),
        asked=_asked(line, launches, found, now.untestable),
        launches=sum(launch.failure is None for launch in launches),
        wall_s=sum(launch.wall_s for launch in launches),
        log=log,
    )
    if known:
        return _without_launches(result, question)
    return result if now.belief is None else _with_belief(result, now, now.belief)


def _without_launches(result: BisectResult, question: Question) -> BisectResult:
    """Return the result for the only commit that may be to blame, or for none."""
    if not question.suspects:
        return msgspec.structs.replace(result, outcome="untouched")
    (place,) = question.suspects
    commits = result.line.commits
    only = CommitCulprit(commits=(commits[place],), before=commits[place - 1], effect=None)
    return msgspec.structs.replace(
        result,
        outcome="found",
        probability=1.0,
        culprits=(only,),
        chances=tuple(float(one == place) for one in range(1, question.length + 1)),
    )


def _with_belief(result: BisectResult, now: SearchState, belief: Belief) -> BisectResult:
    suspects, probability = belief.smallest(CONFIDENCE)
    if now.suspects:
        probability = belief.chance_of(now.suspects)
    return msgspec.structs.replace(
        result,
        probability=probability,
        culprits=_culprits(now, belief, result.line),
        suspects=() if now.suspects else _commits(belief, result.line, suspects),
        two_steps=belief.steps(),
        chances=tuple(belief.chances()),
    )


def _commits(belief: Belief, line: CommitLine, suspects: Suspects) -> tuple[Commit, ...]:
    places = range(suspects.first, suspects.last + 1)
    return tuple(line.commits[place] for place in places if place not in belief.innocent)


def _asked(
    line: CommitLine,
    launches: History,
    found: dict[int, Level],
    untestable: dict[int, str],
) -> tuple[AskedCommit, ...]:
    often = Counter(place_of(launch) for launch in launches if launch.failure is None)
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


def _culprits(now: SearchState, belief: Belief, line: CommitLine) -> tuple[CommitCulprit, ...]:
    effects = step_ratios(now.readings, now.suspects)
    return tuple(
        CommitCulprit(
            commits=_commits(belief, line, each),
            before=line.commits[each.first - 1],
            effect=effect,
            untestable=sum(each.first <= place <= each.last for place in now.untestable),
        )
        for each, effect in zip(now.suspects, effects, strict=True)
    )


def with_work(
    culprit: CommitCulprit, before: StepWork | str, after: StepWork | str
) -> CommitCulprit:
    """Return the culprit with what its step does otherwise, or why it was not counted."""
    if isinstance(before, StepWork) and isinstance(after, StepWork):
        return msgspec.structs.replace(culprit, work=work_changes(before, after))
    why = before if isinstance(before, str) else after
    return msgspec.structs.replace(culprit, uncounted=str(why))
