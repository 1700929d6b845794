"""The analysis of traces as text and as JSON."""

from __future__ import annotations

import collections
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ddp_perf.render.tables import NARROWEST, plain_table, rendered, wrapped
from ddp_perf.render.units import milliseconds, percent, to_json
from ddp_perf.traces.chrome import (
    CollectiveTotal,
    KernelCounts,
    RankComparison,
    RankTrace,
    StepSplit,
    TraceAnalysis,
)

_FIGURES = 30  # width of the figures of a kernel, in columns
_COUNTED = {
    "kernel": "kernel",
    "collective": "collective",
    "copy": "copy",
    "fill": "fill",
    "synchronisation": "wait of the host",
}
_PLURALS = {"copy": "copies", "wait of the host": "waits of the host"}
_SHOWN = 10  # rows of a table; the JSON has more


def trace_text(analysis: TraceAnalysis, width: int) -> str:
    """Return tables of ranks, steps, kernels and collectives, and a comparison of the ranks."""
    width = max(width, NARROWEST)
    parts = [
        wrapped([_origin(rank) for rank in analysis.ranks], width),
        [*_ranks(analysis.ranks, width), *wrapped(list(_notes(analysis.ranks)), width)],
        _steps(analysis.ranks, width),
        _kernels(analysis, width),
        wrapped([_counts(r.rank, r.counts) for r in analysis.ranks if r.counts], width),
        _collectives(analysis.collectives[:_SHOWN], width),
        wrapped(comparison_lines(analysis.comparison), width) if analysis.comparison else [],
    ]
    return "\n\n".join("\n".join(part) for part in parts if part)


def trace_json(analysis: TraceAnalysis) -> str:
    """Return the analysis as JSON, with longer tables and complete names."""
    return to_json(analysis)


def trace_schema() -> dict[str, Any]:
    """Return the JSON Schema of the output of `trace_json`."""
    return msgspec.json.schema(TraceAnalysis)


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
        f"ranks: {comparison.matched} collectives in common, started"
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


def _ranks(ranks: Sequence[RankTrace], width: int) -> list[str]:
    headings = ("rank", "window\nms", "compu-\ntation", "exposed\ncomm.", "exposed\nmemory", "idle")
    table = _numbers(*headings, "communi-\ncation ms", "overlap")
    for rank in ranks:
        split = rank.split
        parts = (
            split.computation_s,
            split.exposed_communication_s,
            split.exposed_memory_s,
            split.idle_s,
        )
        table.add_row(
            str(rank.rank),
            ms(split.window_s),
            *(percent(part / split.window_s if split.window_s else None) for part in parts),
            ms(split.communication_s),
            percent(split.overlap),
        )
    return rendered(table, width)


def _notes(ranks: Sequence[RankTrace]) -> Iterable[str]:
    for rank in ranks:
        if rank.hta is not None:
            overlap = "–" if rank.hta.overlap is None else f"{rank.hta.overlap:.2%}"
            yield (
                f"with HolisticTraceAnalysis's selection of events, rank {rank.rank}: computation"
                f" {ms(rank.hta.computation_s)} ms, idle {ms(rank.hta.idle_s)} ms, other"
                f" {ms(rank.hta.other_s)} ms, overlap {overlap}"
            )
        if rank.dropped:
            yield f"{Path(rank.file).name}: {rank.dropped} events without a usable time left out"


def _steps(ranks: Sequence[RankTrace], width: int) -> list[str]:
    """Return a table with the slowest rank of each step."""
    slowest: dict[int, tuple[int, StepSplit]] = {}
    for rank in ranks:
        for step in rank.steps:
            if step.number not in slowest or step.step_s > slowest[step.number][1].step_s:
                slowest[step.number] = rank.rank, step
    if not slowest:
        return []
    table = _numbers("step", "slowest\nrank", "ms", "compu-\ntation", "communi-\ncation", "exposed")
    for number in sorted(slowest)[:_SHOWN]:
        rank_number, step = slowest[number]
        times = (step.step_s, step.computation_s, step.communication_s)
        table.add_row(
            str(number),
            str(rank_number),
            *map(ms, (*times, step.exposed_communication_s)),
        )
    more = len(slowest) - _SHOWN
    return [*rendered(table, width), *([f"{more} more steps in --json"] if more > 0 else [])]


def _kernels(analysis: TraceAnalysis, width: int) -> list[str]:
    on_cpu = all(rank.device == "CPU" for rank in analysis.ranks)
    table = plain_table()
    table.add_column(
        "operator, by its own time" if on_cpu else "kernel",
        no_wrap=True,
        max_width=width - _FIGURES,
    )
    _add_numbers(table, "calls", "ms", "of the\nwindow")
    window = sum(rank.split.window_s for rank in analysis.ranks)
    for kernel in analysis.kernels[:_SHOWN]:
        share = percent(kernel.total_s / window if window else None)
        name = kernel.name.removeprefix("void ")
        table.add_row(name, f"{kernel.calls:,}", ms(kernel.total_s), share)
    return rendered(table, width) if analysis.kernels else []


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


def _collectives(collectives: Sequence[CollectiveTotal], width: int) -> list[str]:
    if not collectives:
        return []
    table = plain_table()
    for heading in ("collective", "type", "group"):
        table.add_column(heading, overflow="fold")
    _add_numbers(table, "ranks", "bytes", "calls", "ms", "exposed")
    for one in collectives:
        message = one.message
        table.add_row(
            message.kind,
            message.dtype or "–",
            message.group or "–",
            "–" if message.group_size is None else str(message.group_size),
            "–" if message.bytes is None else f"{message.bytes:,}",
            f"{one.calls:,}",
            ms(one.total_s),
            ms(one.exposed_s),
        )
    return rendered(table, width)


def _numbers(*headings: str) -> Any:
    table = plain_table()
    _add_numbers(table, *headings)
    return table


def _add_numbers(table: Any, *headings: str) -> None:
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)


def ms(seconds: float) -> str:
    """Format seconds as milliseconds with three decimals: a trace resolves microseconds."""
    return milliseconds(seconds, 3)
