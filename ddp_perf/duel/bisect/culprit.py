"""The culprit of a search for a commit, as the gate states it."""

from __future__ import annotations

from collections.abc import Iterator

from ddp_perf.core.metric import metric_title
from ddp_perf.core.verdict import Culprit
from ddp_perf.duel.bisect.result import BisectResult, CommitCulprit
from ddp_perf.render.units import counted
from ddp_perf.work.text import change_sentence

ONLY = "the only commit that can change what the case does"


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
