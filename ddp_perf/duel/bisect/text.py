"""The search for the commit as text and as JSON, and its culprit as the gate states it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from ddp_perf.core.metric import metric_title
from ddp_perf.core.verdict import Culprit, DuelOutcome
from ddp_perf.duel.bisect.commits import Commit
from ddp_perf.duel.bisect.result import AskedCommit, BisectResult, CommitCulprit
from ddp_perf.duel.bisect.search import Level
from ddp_perf.render.tables import NARROWEST, plain_table, rendered, wrapped
from ddp_perf.render.units import (
    ABSENT,
    counted,
    describe_duration,
    percent_change,
    to_json,
)
from ddp_perf.work.text import change_sentence

# A search for the commit as text and as JSON.


_BAR = 30  # characters of a probability of 1
_LEAST_CHANCE = 0.005  # of a commit whose bar is shown
_MOST_CHANGES = 8
ONLY = "the only commit that can change what the case does"


def bisect_json(result: BisectResult) -> str:
    """Return the result as JSON."""
    return to_json(result)


def bisect_schema() -> dict[str, Any]:
    """Return the JSON Schema of the result."""
    return msgspec.json.schema(BisectResult)


def bisect_text(result: BisectResult, width: int) -> str:
    """Return the answer, what it rests on, and the next command."""
    width = max(width, NARROWEST)
    parts = [
        wrapped([f"{result.case_id}: {_question(result)}"], width),
        wrapped(_answer(result), width),
        *(_difference(culprit, width) for culprit in result.culprits),
        _table(result.asked, result.line.what, width),
        _bars(result, width),
        wrapped([*_notes(result), f"launches: {result.log}"], width),
        [f"next: {command}"] if (command := _next_command(result)) is not None else [],
    ]
    return "\n\n".join("\n".join(lines) for lines in parts if lines)


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


def _answer(result: BisectResult) -> list[str]:
    title = metric_title(result.metric)
    match result.outcome:
        case "untouched":
            return [
                "No commit changes a file that the case reads, so none is to blame: look at the"
                " machine, its packages, and edits that are not committed."
            ]
        case "not slower":
            if result.duel.outcome is DuelOutcome.UNDECIDED:
                return [f"Bad is not shown to be slower: {_duel(result)}."]
            return [f"There is no slow-down to find: {_duel(result)}."]
        case "undecided" if result.probability is None:
            return [f"Undecided: bad is not shown to be slower yet: {_duel(result)}."]
        case "undecided":
            return [_undecided(result), f"Bad is slower: {_duel(result)} ({result.why})."]
    if is_only(result):
        return [
            f"{_named(result, result.culprits[0])} is {ONLY}. If bad is slower, it is to blame:"
            " nothing was launched."
        ]
    lines = [
        f"{_named(result, culprit)}: {title} {_ratio_text(culprit.effect)}."
        for culprit in result.culprits
        if culprit.effect is not None
    ]
    assert result.probability is not None  # it is found
    steps = "these are the two steps" if len(result.culprits) > 1 else "this is the one step"
    return [
        *lines,
        f"The probability that {steps} is {_chance(result.probability)}; bad is slower than good:"
        f" {_duel(result)} ({result.why}).",
    ]


def is_only(result: BisectResult) -> bool:
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
    low, high = (percent_change(end) for end in level.interval)
    return f"{percent_change(level.ratio)} ({low} to {high})"


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
        f" There are two steps with a probability of {_chance(result.two_steps)}."
        if (result.two_steps or 0) > 0.5
        else ""
    )
    ends = " and ".join(commit.short for commit in result.counted)
    grows = f" The step's work grows most between {ends}." if ends else ""
    return (
        f"Undecided: the {counted(len(result.suspects), result.line.what)} from {first.short} to"
        f" {last.short} have the slow-down with a probability of {_chance(result.probability)};"
        f" run the same command again to go on.{two}{grows}"
    )


def _chance(probability: float | None) -> str:
    """Write a probability. It is never certain, whatever the rounding."""
    assert probability is not None  # bad is slower
    return "> 99.9 %" if probability > 0.999 else f"{100 * probability:.1f} %"


def _difference(culprit: CommitCulprit, width: int) -> list[str]:
    """Return what the step does otherwise than before the culprit."""
    if culprit.uncounted is not None:
        return wrapped([f"Its work could not be compared: {culprit.uncounted}"], width)
    if culprit.work is None:
        return []
    name = culprit.commits[-1].short
    if not culprit.work:
        slower = ", slower" if culprit.effect is not None else ""
        return wrapped([f"{name} does the same work as {culprit.before.short}{slower}."], width)
    shown = [f"  {change_sentence(change)}" for change in culprit.work[:_MOST_CHANGES]]
    if left := len(culprit.work) - len(shown):
        shown.append(f"  and {counted(left, 'more change')}")
    return wrapped([f"What {name} does otherwise than {culprit.before.short}:", *shown], width)


def _table(asked: Sequence[AskedCommit], what: str, width: int) -> list[str]:
    if not asked:
        return []
    table = plain_table()
    table.add_column("", justify="right", no_wrap=True)
    table.add_column(what, no_wrap=True)
    for heading in ("launches", "to good", "95 % interval"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("subject", overflow="ellipsis", no_wrap=True)
    for each in asked:
        table.add_row(*_row(each))
    return rendered(table, width)


def _row(each: AskedCommit) -> tuple[str, ...]:
    ratio = interval = ABSENT
    if each.level is not None:
        ratio = percent_change(each.level.ratio)
        interval = " to ".join(percent_change(end) for end in each.level.interval)
    return (
        str(each.place),
        each.commit.short,
        str(each.launches),
        ratio,
        "cannot be launched" if each.failure is not None else interval,
        each.commit.subject,
    )


def _bars(result: BisectResult, width: int) -> list[str]:
    """Return the posterior: a bar for each commit that may have changed the level."""
    lines = [
        f"{place:>4}  {commit.short}  {_chance(chance):>8}  {'█' * round(_BAR * chance)}".rstrip()
        for place, (commit, chance) in enumerate(
            zip(result.line.commits[1:], result.chances, strict=False), start=1
        )
        if chance >= _LEAST_CHANCE
    ]
    certain = is_only(result) or not lines
    what = f"Probability that a {result.line.what} changed the level:"
    return [] if certain else [what, *lines]


def _notes(result: BisectResult) -> Iterator[str]:
    if result.outcome == "found" and not is_only(result):
        yield (
            "The probability assumes that one slow-down in ten has two steps, and none has three:"
            " where there are two, a wrong commit is named more often than it states."
        )
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
    yield f"{counted(result.launches, 'launch')}, {describe_duration(result.wall_s)} in all."


def _next_command(result: BisectResult) -> str | None:
    """Return the command that goes on, or None if there is nothing to find.

    It is no duel of both ends: that is what the search began with.
    """
    if result.outcome == "found":
        if result.line.what == "version":
            return None  # its commits are not in this repository
        first = result.culprits[0]
        if len(first.commits) == 1:
            return f"git show {first.commits[0].short}"
        return f"git log -p --first-parent {first.before.short}..{first.commits[-1].short}"
    if result.outcome == "untouched":
        return "ddp-perf doctor"
    if result.outcome == "not slower":
        return "ddp-perf doctor" if result.duel.outcome is DuelOutcome.UNDECIDED else None
    good, bad = result.line.commits[0].short, result.line.commits[-1].short
    if result.line.what == "version":
        return f"ddp-perf bisect --torch {good}..{bad} --case {result.case_id}"
    return f"ddp-perf bisect --good {good} --bad {bad} --case {result.case_id}"


# The culprit of a search for a commit, as the gate states it.


def culprit_of(result: BisectResult) -> Culprit | None:
    """Return the commit that a search found, the worse one of two, or None if it found none."""
    if result.outcome != "found" or result.probability is None:
        return None
    worst = max(result.culprits, key=_ratio)
    commit, effect = worst.commits[-1], worst.effect
    return Culprit(
        kind="commit",
        name=commit.hash,
        title=commit.subject,
        author=commit.author,
        probability=result.probability,
        ratio=effect.ratio if effect is not None else None,
        interval=effect.interval if effect is not None else None,
        launches=result.launches,
        seconds=result.wall_s,
        why="; ".join(_reasons(result, worst)),
    )


def _ratio(culprit: CommitCulprit) -> float:
    return 1.0 if culprit.effect is None else culprit.effect.ratio


def _reasons(result: BisectResult, culprit: CommitCulprit) -> Iterator[str]:
    if culprit.effect is None:
        yield ONLY
    else:
        yield f"{metric_title(result.metric)} of {counted(result.launches, 'launch')}"
    if (others := len(culprit.commits) - 1) > 0:
        before = f"one of the {others} commits" if others > 1 else "the commit"
        yield f"or {before} before it, which cannot be launched"
    for other in result.culprits:
        if other is not culprit:
            yield f"{other.commits[-1].short} changed it, too"
    if culprit.work:
        yield change_sentence(culprit.work[0])
