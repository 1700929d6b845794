"""Measure a baseline of 20 cases after 365 appended sessions: its size, and how long it loads."""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from ddp_perf.baselines.store import BaselineStore
from tests.years import CASES, DAYS, append_day, year_of_sessions

REPEATS = 21
LAST = DAYS + REPEATS  # the day after the last one that is appended


def main() -> None:
    _measure("quiet", range(0))
    _measure("all red for 200 days", range(DAYS - 200, LAST))


def _measure(what: str, red: range) -> None:
    """Print the figures of one year; in the days ``red`` the step time of each case is slower."""
    year, days = year_of_sessions(red), iter(range(DAYS, LAST))
    key, sessions = year.accelerator, max(len(case.sessions) for case in year.cases.values())
    with tempfile.TemporaryDirectory() as name:
        store = BaselineStore(Path(name))
        megabytes = store.update(key, lambda _: year).stat().st_size / 1e6
        load_ms = _median_ms(lambda: store.load(key))
        append_ms = _median_ms(
            lambda: store.update(key, lambda old: append_day(old, next(days), red=red))
        )
    print(
        f"years: {CASES} cases after {DAYS} days, {what}: {sessions} sessions of a case,"
        f" {megabytes:.2f} MB (target: under 1 MB), loaded in {load_ms:.0f} ms of CPU time"
        f" (median of {REPEATS}; target: under 50 ms), a day appended in {append_ms:.0f} ms"
    )


def _median_ms(call: Callable[[], object]) -> float:
    """Return the CPU time of a call, in which only the write waits for the disk."""
    times = []
    for _ in range(REPEATS):
        before = time.process_time()
        call()
        times.append(time.process_time() - before)
    return 1e3 * statistics.median(times)


if __name__ == "__main__":
    main()
