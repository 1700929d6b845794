"""The gains of each technique against its base, in the words of document 004."""

from __future__ import annotations

from collections.abc import Iterator

from ddp_perf.render.model import Cell, Column, Note, Part, Table
from ddp_perf.render.units import ABSENT, counted, milliseconds, percent, short_names, short_number
from ddp_perf.session.gains import GainTable, TechniqueGain, gains_of
from ddp_perf.session.result import SuiteResult
from ddp_perf.stats.interval import PairedRatio

_GAINS = (
    Column(title="technique", words=True),
    Column(title="speed-up"),
    Column(title="comm. ms"),
    Column(title="overhead reduction"),
    Column(title="sent MB"),
    Column(title="peak MB", media="wide"),
    Column(title="memory saved"),
)
_MEANING = (
    "Ratios to the base with 95 % intervals, of launches paired by round. Speed-up: samples per"
    " second. Comm.: exposed communication and interference; its change is the overhead reduction."
    " Sent: by a rank, if collectives are rings. Comm. and sent are for the samples of one step of"
    " the base. The speed-ups of document 004 are those of communication alone: 1 ÷ (1 − overhead"
    " reduction). No verdict depends on these tables."
)


def gain_parts(result: SuiteResult) -> Iterator[Part]:
    """Yield a table for each base, the figures of the most ranks first; nothing without one."""
    names = short_names(result.measurements)
    tables = sorted(gains_of(result), key=lambda table: -table.ranks)
    for table in tables:
        pairs = [gain.pairs for gain in table.gains]
        least = f"{min(pairs)} to " if min(pairs) < max(pairs) else ""
        of = f"{least}{counted(max(pairs), 'pair')} of launches"
        yield Note(text=f"against {names[table.base]}, by {of}:")
        rows = (_base_row(table), *map(_row, table.gains))
        yield Table(label=f"gains against {table.base}", columns=_GAINS, rows=rows)
    if tables:
        yield Note(text=_MEANING)


def _base_row(table: GainTable) -> tuple[Cell, ...]:
    return (
        Cell("base"),
        Cell("1.00", 1.0),
        Cell(_milliseconds(table.communication_s), table.communication_s),
        Cell(ABSENT),
        Cell(_megabytes(table.sent_bytes), table.sent_bytes),
        Cell(_megabytes(table.peak_memory), table.peak_memory),
        Cell(ABSENT),
    )


def _row(gain: TechniqueGain) -> tuple[Cell, ...]:
    return (
        Cell(gain.technique, gain.technique),
        Cell(_ratio(gain.speedup), None if gain.speedup is None else gain.speedup.ratio),
        Cell(_milliseconds(gain.communication_s), gain.communication_s),
        Cell(_reduction(gain.communication), _saved(gain.communication)),
        Cell(_megabytes(gain.sent_bytes), gain.sent_bytes),
        Cell(_megabytes(gain.peak_memory), gain.peak_memory),
        Cell(_reduction(gain.memory), _saved(gain.memory)),
    )


def _saved(ratio: PairedRatio | None) -> float | None:
    return None if ratio is None else 1 - ratio.ratio


def reduction(ratio: PairedRatio | None) -> tuple[float, float | None, float | None] | None:
    """Return 1 − ratio with the ends of its interval, the lower one first."""
    if ratio is None:
        return None
    low, high = ratio.interval or (None, None)
    return 1 - ratio.ratio, None if high is None else 1 - high, None if low is None else 1 - low


def _ratio(ratio: PairedRatio | None) -> str:
    if ratio is None:
        return ABSENT
    if ratio.interval is None:
        return f"{ratio.ratio:.2f}"
    low, high = ratio.interval
    return f"{ratio.ratio:.2f} [{low:.2f}, {high:.2f}]"


def _reduction(ratio: PairedRatio | None) -> str:
    found = reduction(ratio)
    if found is None:
        return ABSENT
    saved, low, high = found
    ends = "" if low is None or high is None else f" [{100 * low:.0f}, {100 * high:.0f}]"
    return f"{percent(saved, 0)}{ends}"


def _milliseconds(seconds: float | None) -> str:
    return ABSENT if seconds is None else milliseconds(seconds)


def _megabytes(count: float | None) -> str:
    return ABSENT if count is None else short_number(count / 1e6)
