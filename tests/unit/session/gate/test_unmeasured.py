"""Sessions in which a metric was INVALID are counted."""

from __future__ import annotations

import msgspec
import pytest

from ddp_perf.core.verdict import Outcome
from ddp_perf.session.gate.persistence import with_unmeasured
from tests.builders import make_case, make_case_baseline, make_finding, make_session

CASE = make_case()
NOW = "2026-01-20T03:04:05+00:00"


def without_step(day):
    session = make_session([0.01], day=day)
    return msgspec.structs.replace(session, launches=({"peak_memory": 1000.0},))


def unmeasured(*sessions, outcome=Outcome.INVALID, **fields):
    stored = make_case_baseline(CASE, *sessions)
    return with_unmeasured(make_finding(CASE, outcome, **fields), stored, NOW).unmeasured


@pytest.mark.parametrize("days", [(), (11,), (11, 12, 13)])
def test_stored_sessions_that_lack_the_metric_count(days):
    sessions = [make_session([0.01], day=10), *map(without_step, days)]

    assert unmeasured(*sessions) == len(days)


@pytest.mark.parametrize("metric", ["structure", "loss", "target:throughput"])
def test_what_no_session_stores_is_not_missing_in_it(metric):
    assert unmeasured(*(make_session([0.01], day=day) for day in (1, 2, 3)), metric=metric) == 0


def test_sessions_of_one_half_day_count_once_and_the_one_of_now_does_not():
    near = [msgspec.structs.replace(without_step(12), date=f"2026-01-12T0{h}:00") for h in (1, 5)]
    today = msgspec.structs.replace(without_step(20), date="2026-01-20T01:00:00+00:00")

    assert unmeasured(make_session([0.01], day=10), *near, today) == 1


def test_only_what_is_invalid_counts():
    assert unmeasured(make_session([0.01]), without_step(2), outcome=Outcome.PASS) == 0
