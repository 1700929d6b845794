"""The analysis of traces as text."""

from __future__ import annotations

import collections
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from ddp_perf.render.model import Column, Table, figures, words
from ddp_perf.render.terminal import Block
from ddp_perf.render.units import ABSENT, counted, milliseconds, percent
from ddp_perf.traces.chrome import (
    CollectiveTotal,
    KernelCounts,
    KernelTotal,
    RankComparison,
    RankTrace,
    StepSplit,
    TraceAnalysis,
)

_COUNTED = {
    "kernel": "kernel",
    "collective": "collective",
    "copy": "copy",
    "fill": "fill",
    "synchronisation": "wait of the host",
}
_PLURALS = {"copy": "copies", "wait of the host": "waits of the host"}
_SHOWN = 10  # rows of a table; the JSON has more


def trace_parts(analysis: TraceAnalysis) -> Iterator[Block]:
    """Yield tables of ranks, steps, kernels and collectives, and a comparison of the ranks."""
    yield from map(_origin, analysis.ranks)
    yield _ranks(analysis.ranks)
    yield from _notes(analysis.ranks)
    yield from _steps(analysis.ranks)
    yield from _kernels(analysis)
    yield from (_counts(r.rank, r.counts) for r in analysis.ranks if r.counts)
    yield from _collectives(analysis.collectives[:_SHOWN])
    if analysis.comparison:
        yield from comparison_lines(analysis.comparison)


def comparison_lines(comparison: RankComparison) -> list[str]:
    """Return lines that compare the ranks: the skew, and the slowest rank."""
    if comparison.median_skew_s is None or comparison.largest_skew_s is None:
        return ["ranks: no collective could be matched between two ranks"]
    how = ""
    if not comparison.one_clock:
        several = f"those of {comparison.hosts} hosts are never compared"
        clocks = several if comparison.hosts > 1 else "the files' differ"
        how = f", by their lengths and not by clocks: {clocks}"
    lines = [
        f"ranks: {counted(comparison.matched, 'collective')} in common, started"
        f" {ms(comparison.median_skew_s)} ms apart (median), {ms(comparison.largest_skew_s)} ms"
        f" at most{how}"
    ]
    slowest = next((r for r in comparison.ranks if r.rank == comparison.slowest), None)
    if slowest is None:
        lines.append("slowest rank: none (no rank is the last in most of them)")
    else:
        lines.append(
            f"slowest rank: {slowest.rank}, the last in {slowest.last} of"
            f" {slowest.collectives}, {ms(slowest.behind_s)} ms after the first (median)"
        )
    if comparison.unmatched:
        lines.append(f"{comparison.unmatched} calls have no counterpart on another rank")
    return lines


def _origin(rank: RankTrace) -> str:
    of = f" of {rank.world_size}" if rank.world_size is not None else ""
    steps = f"{len(rank.steps)} steps" if rank.steps else "no steps annotated"
    about = [rank.device or "a GPU", *filter(None, [rank.backend, rank.host]), steps]
    return f"{Path(rank.file).name}: rank {rank.rank}{of}, {', '.join(about)}"


def _ranks(ranks: Sequence[RankTrace]) -> Table:
    titles = ("window ms", "compu\u00adtation", "exposed comm.", "exposed memory", "idle")
    columns = (*words("rank"), *figures(*titles, "communi\u00adcation ms", "overlap"))
    return Table.of_texts(columns, map(_rank, ranks))


def _rank(rank: RankTrace) -> tuple[str, ...]:
    split = rank.split
    parts = (
        split.computation_s,
        split.exposed_communication_s,
        split.exposed_memory_s,
        split.idle_s,
    )
    return (
        str(rank.rank),
        ms(split.window_s),
        *(percent(part / split.window_s if split.window_s else None) for part in parts),
        ms(split.communication_s),
        percent(split.overlap),
    )


def _notes(ranks: Sequence[RankTrace]) -> Iterable[str]:
    for rank in ranks:
        if rank.hta is not None:
            yield (
                f"with HolisticTraceAnalysis's selection of events, rank {rank.rank}: computation"
                f" {ms(rank.hta.computation_s)} ms, idle {ms(rank.hta.idle_s)} ms, other"
                f" {ms(rank.hta.other_s)} ms, overlap {percent(rank.hta.overlap, 2)}"
            )
        if rank.dropped:
            yield f"{Path(rank.file).name}: {rank.dropped} events without a usable time left out"


def _steps(ranks: Sequence[RankTrace]) -> Iterator[Block]:
    """Yield a table with the slowest rank of each step."""
    slowest: dict[int, tuple[int, StepSplit]] = {}
    for rank in ranks:
        for step in rank.steps:
            if step.number not in slowest or step.step_s > slowest[step.number][1].step_s:
                slowest[step.number] = rank.rank, step
    if not slowest:
        return
    columns = (
        *words("step"),
        *figures("slowest rank", "ms", "compu\u00adtation", "communi\u00adcation", "exposed"),
    )
    rows = []
    for number in sorted(slowest)[:_SHOWN]:
        slow, step = slowest[number]
        times = (step.step_s, step.computation_s, step.communication_s)
        rows.append((str(number), str(slow), *map(ms, (*times, step.exposed_communication_s))))
    yield Table.of_texts(columns, rows)
    if (more := len(slowest) - _SHOWN) > 0:
        yield f"{counted(more, 'more step')} in --json"


def _kernels(analysis: TraceAnalysis) -> Iterator[Table]:
    if not analysis.kernels:
        return
    on_cpu = all(rank.device == "CPU" for rank in analysis.ranks)
    title = "operator, by its own time" if on_cpu else "kernel"
    window = sum(rank.split.window_s for rank in analysis.ranks)
    columns = (Column(title=title, words=True, cut=True), *figures("calls", "ms", "of the window"))
    yield Table.of_texts(columns, (_kernel(one, window) for one in analysis.kernels[:_SHOWN]))


def _kernel(kernel: KernelTotal, window: float) -> tuple[str, ...]:
    share = percent(kernel.total_s / window if window else None)
    return kernel.name.removeprefix("void "), f"{kernel.calls:,}", ms(kernel.total_s), share


def _counts(rank: int, counts: KernelCounts) -> str:
    """Return how often a rank calls what in a step; each name is in the JSON."""
    totals = collections.defaultdict[str, list[tuple[int, ...]]](list)
    for one in counts.counts:
        totals[one.kind].append(one.calls)
    parts = [
        _plural([sum(step) for step in zip(*totals[kind], strict=True)], singular)
        for kind, singular in _COUNTED.items()
        if totals[kind]
    ]
    waits = ", ".join(
        f"{one.name} {_range(one.calls)}" for one in counts.counts if one.kind == "synchronisation"
    )
    per = "a step" if counts.steps else "in all"
    return f"rank {rank}, {per}: {', '.join(parts)}{f' ({waits})' if waits else ''}"


def _plural(calls: Sequence[int], singular: str) -> str:
    noun = singular if max(calls) == 1 else _PLURALS.get(singular, singular + "s")
    return f"{_range(calls)} {noun}"


def _range(calls: Sequence[int]) -> str:
    low, high = min(calls), max(calls)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _collectives(collectives: Sequence[CollectiveTotal]) -> Iterator[Table]:
    if not collectives:
        return
    columns = (
        *words("collective", "type", "group"),
        *figures("ranks", "bytes", "calls", "ms", "exposed"),
    )
    rows = [
        (
            one.message.kind,
            one.message.dtype or ABSENT,
            one.message.group or ABSENT,
            ABSENT if one.message.group_size is None else str(one.message.group_size),
            ABSENT if one.message.bytes is None else f"{one.message.bytes:,}",
            f"{one.calls:,}",
            ms(one.total_s),
            ms(one.exposed_s),
        )
        for one in collectives
    ]
    yield Table.of_texts(columns, rows)


def ms(seconds: float) -> str:
    """Format seconds as milliseconds with three decimals: a trace resolves microseconds."""
    return milliseconds(seconds, 3)
