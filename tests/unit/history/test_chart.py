"""The chart of a history has every session, the level and the changes."""

from __future__ import annotations

from ddp_perf.core.verdict import Outcome
from ddp_perf.history.chart import history_chart, sessions_chart
from ddp_perf.history.trend import case_history
from ddp_perf.render.chart import image
from tests.charts import drawn, words
from tests.recorded_sessions import make_series, stepped


def test_it_shows_sessions_levels_and_changes():
    outcomes = {3: Outcome.INVALID, 22: Outcome.REGRESSION}
    history = case_history(make_series(stepped(), outcomes=outcomes, injected=(5,)))

    chart = history_chart(history)

    verdicts = [verdict for (verdict,) in drawn(chart, "verdict")]
    assert len(verdicts) == 39  # all but the one slowed on purpose
    assert {"session", "INVALID", "REGRESSION"} == set(verdicts)
    levels = [level for (level,) in drawn(chart, "level")]
    assert len(levels) - levels.count(None) == 38  # of the sound sessions
    ((_, _, change),) = drawn(chart, "before", "after", "change")
    assert change.startswith("step of +5.")
    assert change in words(chart)
    assert b"step time, ms" in image(chart, ".svg")


def test_sessions_without_a_trend_are_drawn():
    series = make_series(stepped())

    chart = sessions_chart(series.sessions[-3:], series.metric)

    assert len(drawn(chart, "verdict", "value")) == 3
    assert words(chart) == ["Step time of the last 3 sessions"]


def test_sessions_and_changes_have_one_clock():
    chart = history_chart(case_history(make_series(stepped())))

    dates = {date for (date,) in drawn(chart, "date")}
    ((before, after),) = drawn(chart, "before", "after")
    assert {before, after} <= dates
    assert all(date.endswith("Z") for date in dates)
