"""The range of a change has the sessions on both sides; disturbed sessions are left out."""

from __future__ import annotations

import msgspec
import pytest

from ddp_perf.core.verdict import Outcome
from ddp_perf.history.trend import case_history, newest_work
from tests.builders import make_case
from tests.recorded_sessions import make_series, stepped


def test_step_range_has_the_commits_and_versions_on_both_sides():
    series = make_series(stepped(), torch=lambda n: "2.12.0" if n < 20 else "2.13.0")
    (found,) = case_history(series).ranges

    assert found.before == series.sessions[19].session
    assert found.after == series.sessions[20].session
    assert found.versions == ("torch 2.12.0 → 2.13.0",)
    assert not found.is_same_commit


def test_range_with_one_commit_on_both_sides_is_the_same_commit():
    (found,) = case_history(make_series(stepped(), commit=lambda n: "abc")).ranges

    assert found.is_same_commit
    assert found.versions == ()


@pytest.mark.parametrize(
    "left_out",
    [{"outcomes": {19: Outcome.INVALID, 20: Outcome.INVALID}}, {"injected": (19, 20)}],
    ids=["invalid", "slowed on purpose"],
)
def test_unusable_sessions_are_left_out(left_out):
    values = stepped()
    values[19] = values[20] = 1.0
    series = make_series(values, **left_out)
    (found,) = case_history(series).ranges

    assert len(series.sound()) == 38
    assert found.before == series.sessions[18].session
    assert found.after == series.sessions[21].session


def test_history_without_a_usable_session_has_no_trend():
    history = case_history(make_series([0.01], outcomes={0: Outcome.INVALID}))

    assert history.trend is None
    assert history.ranges == ()


def test_newest_work_of_a_case_is_returned():
    old = make_series([0.01] * 3, key=1)
    new = make_series([0.01] * 5, key=2, case=make_case(batch_size=128))
    never = msgspec.structs.replace(old, sessions=())

    assert newest_work([old, new, never]) == [new]
    assert newest_work([new, old]) == [new]
    assert newest_work([never]) == []
