"""The tables of a session as CSV (RFC 4180), for spreadsheets and other programs."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from ddp_perf.report.gains import reduction
from ddp_perf.report.rows import CaseRow
from ddp_perf.session.gains import GainTable, TechniqueGain
from ddp_perf.stats.interval import PairedRatio

# A spreadsheet runs a cell that begins with one of these (OWASP, "CSV Injection").
_RUN = ("=", "+", "-", "@", "\t", "\r", "\n")


def csv_text(heading: Sequence[str], rows: Iterable[Iterable[Any]]) -> str:
    """Return a heading and rows as CSV. An absent figure is empty.

    A text that a spreadsheet would run has an apostrophe before it.
    """
    file = io.StringIO(newline="")
    writer = csv.writer(file)
    writer.writerow(heading)
    writer.writerows([_cell(value) for value in row] for row in rows)
    return file.getvalue()


def _cell(value: Any) -> Any:
    return f"'{value}" if isinstance(value, str) and value.startswith(_RUN) else value


def summary_csv(rows: Sequence[CaseRow]) -> str:
    """Return every field of every row: ``comprehensive_summary.csv``."""
    return csv_text(
        CaseRow.__struct_encode_fields__, (msgspec.to_builtins(row).values() for row in rows)
    )


# ``techniques.csv``: what each technique gains, in SI units.


_FIELDS = (
    *("suite", "base", "ranks", "technique", "case", "pairs"),
    *("speedup", "speedup_low", "speedup_high"),
    *("communication_s", "overhead_reduction", "overhead_reduction_low", "overhead_reduction_high"),
    *("sent_bytes", "sent_ratio"),
    *("peak_memory", "memory_saved", "memory_saved_low", "memory_saved_high"),
)


def techniques_csv(tables: Sequence[GainTable]) -> str:
    """Return a row for each technique of each base."""
    gains = ((table, gain) for table in tables for gain in table.gains)
    return csv_text(_FIELDS, (_row(table, gain) for table, gain in gains))


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
