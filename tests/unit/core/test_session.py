"""Two sessions count as two if they began half a day apart."""

from __future__ import annotations

import datetime

import pytest

from ddp_perf.core.baseline import are_apart

START = datetime.datetime(2026, 1, 1, 3, tzinfo=datetime.timezone.utc)


def at(hours):
    return (START + datetime.timedelta(hours=hours)).isoformat()


@pytest.mark.parametrize(
    ("minutes", "apart"),
    [(0, False), (719, False), (720, True), (-719, False), (-720, True), (2880, True)],
)
def test_sessions_are_apart_from_half_a_day_on(minutes, apart):
    assert are_apart(at(0), at(minutes / 60)) is apart


@pytest.mark.parametrize(
    ("earlier", "later", "apart"),
    [
        ("2026-01-01", "2026-01-02", True),
        ("2026-01-01T10:00:00", "2026-01-01T22:00:00+00:00", True),
        ("2026-01-01T10:00:00+00:00", "2026-01-01T22:00:00", True),
        ("2026-01-01T10:00:00+00:00", "2026-01-01T22:30:00+02:00", False),
    ],
    ids=["days", "the earlier one without a zone is UTC", "the later one too", "other zones"],
)
def test_dates_of_any_zone_are_compared(earlier, later, apart):
    assert are_apart(earlier, later) is apart
