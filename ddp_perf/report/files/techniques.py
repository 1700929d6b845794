"""``techniques.csv``: what each technique gains, in SI units."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import Any

from ddp_perf.report.gains import reduction
from ddp_perf.session.gains import GainTable, TechniqueGain
from ddp_perf.stats.paired import PairedRatio

_FIELDS = (
    *("suite", "base", "ranks", "technique", "case", "pairs"),
    *("speedup", "speedup_low", "speedup_high"),
    *("communication_s", "overhead_reduction", "overhead_reduction_low", "overhead_reduction_high"),
    *("sent_bytes", "sent_ratio"),
    *("peak_memory", "memory_saved", "memory_saved_low", "memory_saved_high"),
)


def techniques_csv(tables: Sequence[GainTable]) -> str:
    """Return a row for each technique of each base as CSV (RFC 4180), with a heading."""
    file = io.StringIO(newline="")
    writer = csv.writer(file)
    writer.writerow(_FIELDS)
    for table in tables:
        for gain in table.gains:
            writer.writerow(_row(table, gain))
    return file.getvalue()


def _row(table: GainTable, gain: TechniqueGain) -> list[Any]:
    return [
        *(table.suite, table.base, table.ranks, gain.technique, gain.case_id, gain.pairs),
        *_ratio(gain.speedup),
        *(gain.communication_s, *(reduction(gain.communication) or (None,) * 3)),
        *(gain.sent_bytes, gain.sent_ratio),
        *(gain.peak_memory, *(reduction(gain.memory) or (None,) * 3)),
    ]


def _ratio(ratio: PairedRatio | None) -> tuple[float | None, float | None, float | None]:
    if ratio is None:
        return None, None, None
    return ratio.ratio, *(ratio.interval or (None, None))
