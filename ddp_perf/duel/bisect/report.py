"""The report of a search for the commit, or the version of torch, that made a case slower."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from ddp_perf.core.metric import metric_title
from ddp_perf.core.verdict import DuelOutcome
from ddp_perf.duel.bisect.commits import Commit
from ddp_perf.duel.bisect.culprit import ONLY
from ddp_perf.duel.bisect.result import AskedCommit, BisectResult, CommitCulprit
from ddp_perf.duel.bisect.search import Level
from ddp_perf.render.model import (
    Cell,
    Column,
    NextStep,
    Note,
    Report,
    Section,
    Status,
    Table,
    notes,
)
from ddp_perf.render.units import (
    ABSENT,
    change_range,
    counted,
    describe_duration,
    percent_change,
)
from ddp_perf.work.text import change_sentence

_LEAST_CHANCE = 0.01  # of a commit that is in the table though it was not launched
_WIDEST = 60  # columns of a commit in the table


def build_bisect(result: BisectResult) -> Report:
    """Return what a person reads of a search, finished or not."""
    what = result.line.what
    return Report(
        title=f"slower {what}",
        verdict=_verdict(result),
        status=Status.GREEN if result.outcome == "found" else Status.UNDECIDED,
        about=(Note(text=f"{result.case_id}: {_question(result)}"),),
        headline=_answer(result),
        table=Table(label=f"what each {what} shows", columns=_columns(what), rows=_rows(result)),
        notes=notes(_notes(result)),
        sections=tuple(
            _difference(one)
            for one in result.culprits
            if one.work is not None or one.uncounted is not None
        ),
        certainty=_certainty(result),
        next=_next_step(result),
        option="--json",
    )


def _verdict(result: BisectResult) -> str:
    """Return the commit of each step, or what there is in its place."""
    if result.outcome == "found":
        found = (culprit.commits for culprit in result.culprits)
        return " and ".join(
            commits[0].short if len(commits) == 1 else f"one of {len(commits)}" for commits in found
        )
    return "undecided" if result.outcome == "undecided" else "none"


def _question(result: BisectResult) -> str:
    line = result.line
    merges = f", {counted(line.merges, 'merge')} among them" if line.merges else ""
    touching = ""
    if result.innocent:
        number = line.length - len(result.innocent)
        touching = f"; {number or 'none'} of them can change what the case does"
    return (
        f"{counted(line.length, line.what)} after good {line.commits[0].short} up to bad"
        f" {line.commits[-1].short}{merges}{touching}"
    )


def _answer(result: BisectResult) -> str:
    match result.outcome:
        case "untouched":
            return "No commit changes a file that the case reads, so none is to blame"
        case "not slower" if result.duel.outcome is not DuelOutcome.UNDECIDED:
            return f"There is no slow-down to find: {_duel(result)}"
        case "not slower":
            return f"Bad is not shown to be slower: {_duel(result)}"
        case "undecided" if result.probability is None:
            return f"Undecided: bad is not shown to be slower yet: {_duel(result)}"
        case "undecided":
            return _undecided(result)
    if _is_only(result):
        return (
            f"{_named(result, result.culprits[0])} is {ONLY}. If bad is slower, it is to blame:"
            " nothing was launched"
        )
    title = metric_title(result.metric)
    return "; ".join(
        f"{_named(result, culprit)}: {title} {_ratio_text(culprit.effect)}"
        for culprit in result.culprits
        if culprit.effect is not None
    )


def _is_only(result: BisectResult) -> bool:
    """Return whether the culprit is known without a launch."""
    return any(culprit.effect is None for culprit in result.culprits)


def _named(result: BisectResult, culprit: CommitCulprit) -> str:
    if len(culprit.commits) == 1:
        return _commit_text(culprit.commits[0])
    first, last = culprit.commits[0], culprit.commits[-1]
    untestable = (
        f", since {culprit.untestable} of them cannot be launched" if culprit.untestable else ""
    )
    return (
        f"One of these {len(culprit.commits)} {result.line.what}s{untestable}, from"
        f" {_commit_text(first)} to {_commit_text(last)}"
    )


def _commit_text(commit: Commit) -> str:
    if commit.name is not None:
        return f"torch {commit.name}"
    return f'{commit.short} "{commit.subject}" ({commit.author}, {commit.date})'


def _ratio_text(level: Level) -> str:
    return f"{percent_change(level.ratio)} ({change_range(level.interval)})"


def _duel(result: BisectResult) -> str:
    verdict = result.duel
    if verdict.ratio is None or verdict.interval is None:
        return verdict.reason
    change = _ratio_text(Level(ratio=verdict.ratio, interval=verdict.interval))
    what = f"{metric_title(result.metric)} {change}"
    found = f"{what} in {counted(verdict.pairs, 'pair')}"
    return found if verdict.outcome is DuelOutcome.SLOWER else f"{found}, {verdict.outcome.value}"


def _undecided(result: BisectResult) -> str:
    first, last = result.suspects[0], result.suspects[-1]
    two = (
        f". There are two steps with a probability of {_chance(result.two_steps)}"
        if (result.two_steps or 0) > 0.5
        else ""
    )
    ends = " and ".join(commit.short for commit in result.counted)
    grows = f". The step's work grows most between {ends}" if ends else ""
    return (
        f"Undecided: the {counted(len(result.suspects), result.line.what)} from {first.short} to"
        f" {last.short} have the slow-down with a probability of {_chance(result.probability)}"
        f"{two}{grows}"
    )


def _chance(probability: float | None) -> str:
    """Write a probability. It is never certain, whatever the rounding."""
    assert probability is not None  # bad is slower
    if 0.001 <= probability <= 0.999:
        return f"{100 * probability:.1f} %"
    return "> 99.9 %" if probability > 0.5 else "< 0.1 %"


def _difference(culprit: CommitCulprit) -> Section:
    """Return what the step does otherwise than before the culprit."""
    same = "Nothing: it does the same work."
    if culprit.uncounted is not None:
        same = f"Its work could not be compared: {culprit.uncounted}"
    changes = [Note(text=change_sentence(one), kind="change") for one in culprit.work or ()]
    return Section(
        title=f"what {culprit.commits[-1].short} does otherwise than {culprit.before.short}",
        parts=tuple(changes or [Note(text=same)]),
    )


def _columns(what: str) -> tuple[Column, ...]:
    figures = ("launches", "to good", "95 % interval", "probability of a change")
    return (Column(title=what, words=True), *(Column(title=title) for title in figures))


def _rows(result: BisectResult) -> tuple[tuple[Cell, ...], ...]:
    """Return the commits that were launched, and those that may have changed the level."""
    asked = {each.place: each for each in result.asked}
    chances = dict(enumerate(result.chances, start=1))
    likely = {place for place, chance in chances.items() if chance >= _LEAST_CHANCE}
    return tuple(
        tuple(map(Cell, _row(result.line.commits[place], asked.get(place), chances.get(place))))
        for place in sorted(asked.keys() | likely if asked else ())
    )


def _row(commit: Commit, each: AskedCommit | None, chance: float | None) -> Iterator[str]:
    level = None if each is None else each.level
    yield textwrap.shorten(f"{commit.short} {commit.subject}", _WIDEST, placeholder=" …")
    yield ABSENT if each is None else str(each.launches)
    yield ABSENT if level is None else percent_change(level.ratio)
    if each is not None and each.failure is not None:
        yield "cannot be launched"
    else:
        yield ABSENT if level is None else change_range(level.interval)
    yield ABSENT if chance is None else _chance(chance)


def _notes(result: BisectResult) -> Iterator[str]:
    if result.probability is not None and not _is_only(result):
        yield f"Bad is slower than good: {_duel(result)} ({result.why})."
    for each in result.asked:
        if each.failure is not None:
            yield f"{each.commit.short} cannot be launched, and is skipped: {each.failure}"
    for culprit in result.culprits:
        if culprit.compare is not None:
            yield f"The commits of {culprit.commits[-1].short}: {culprit.compare}"
    if any(culprit.untestable for culprit in result.culprits):
        yield "The same command tries those beside the step once more."
    if result.line.merges:
        yield "A merge stands for all commits that it brought in: only first parents are asked."
    if result.line.joins:
        yield (
            f"Good is not on the line of first parents of bad: {result.line.commits[1].short} is"
            " the merge that brought it in, and stands for all else that was merged."
        )
    launches = counted(result.launches, "launch")
    yield f"{launches}, {describe_duration(result.wall_s)} in all: {result.log}"


def _certainty(result: BisectResult) -> str | None:
    if result.outcome != "found" or _is_only(result):
        return None
    steps = "these are the two steps" if len(result.culprits) > 1 else "this is the one step"
    return (
        f"The probability that {steps} is {_chance(result.probability)}. It assumes that one"
        " slow-down in ten has two steps, and none has three: where there are two, a wrong"
        f" {result.line.what} is named more often than it states."
    )


def _next_step(result: BisectResult) -> NextStep | None:
    """Return the command that goes on, or None if there is nothing to find.

    It is no duel of both ends: that is what the search began with.
    """
    if result.outcome == "found":
        if result.line.what == "version":
            return None  # its commits are not in this repository
        first = result.culprits[0]
        shown = f"show {first.commits[0].short}"
        if len(first.commits) > 1:
            shown = f"log -p --first-parent {first.before.short}..{first.commits[-1].short}"
        return NextStep(why="see what it changed", command=f"git {shown}")
    if result.outcome == "untouched":
        why = "look at the machine, its packages, and edits that are not committed"
        return NextStep(why=why, command="ddp-perf doctor")
    if result.outcome == "not slower":
        quiet = NextStep(why="see what disturbs the machine", command="ddp-perf doctor")
        return quiet if result.duel.outcome is DuelOutcome.UNDECIDED else None
    good, bad = result.line.commits[0].short, result.line.commits[-1].short
    ends = f"--good {good} --bad {bad}"
    if result.line.what == "version":
        ends = f"--torch {good}..{bad}"
    command = f"ddp-perf bisect {ends} --case {result.case_id}"
    return NextStep(why="go on from these launches", command=command)
