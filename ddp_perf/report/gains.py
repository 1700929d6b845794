"""The cells of the table of what each technique gains, in the words of document 004."""

from __future__ import annotations

from ddp_perf.render.units import ABSENT, counted, milliseconds, percent, short_number
from ddp_perf.session.gains import GainTable, TechniqueGain
from ddp_perf.stats.paired import PairedRatio

TITLE = "What each technique gains"
HEADINGS = (
    "technique",
    "speed-up",
    "comm. ms",
    "overhead reduction",
    "sent MB",
    "peak MB",
    "memory saved",
)
MEANING = (
    "Ratios to the base with 95 % intervals, of launches paired by round. Speed-up: samples per"
    " second. Comm.: exposed communication and interference; its change is the overhead reduction."
    " Sent: by a rank, if collectives are rings. Comm. and sent are for the samples of one step of"
    " the base."
)
NOT_AS_THE_DOCUMENT = (
    "The speed-ups of document 004 are those of communication alone: 1 ÷ (1 − overhead reduction)."
)


def compared_by(table: GainTable) -> str:
    """Return the number of pairs of launches: ``by 5 pairs of launches``."""
    pairs = [gain.pairs for gain in table.gains]
    least = f"{min(pairs)} to " if min(pairs) < max(pairs) else ""
    return f"by {least}{counted(max(pairs), 'pair')} of launches"


def gain_rows(table: GainTable) -> list[list[str]]:
    """Return the cells of the base, and of each technique."""
    base = [
        "base",
        "1.00",
        _milliseconds(table.communication_s),
        ABSENT,
        _megabytes(table.sent_bytes),
        _megabytes(table.peak_memory),
        ABSENT,
    ]
    return [base, *map(_row, table.gains)]


def _row(gain: TechniqueGain) -> list[str]:
    return [
        gain.technique,
        _ratio(gain.speedup),
        _milliseconds(gain.communication_s),
        _reduction(gain.communication),
        _megabytes(gain.sent_bytes),
        _megabytes(gain.peak_memory),
        _reduction(gain.memory),
    ]


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
