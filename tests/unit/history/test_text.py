"""The text of a history has every session and every change with its interval."""

from __future__ import annotations

import json

import msgspec
import pytest

from ddp_perf.core.verdict import Outcome
from ddp_perf.history.text import case_parts, overview_parts, range_parts
from ddp_perf.history.trend import case_history
from ddp_perf.render.terminal import text_of
from ddp_perf.render.units import to_json
from tests.builders import make_case
from tests.recorded_sessions import make_series, stepped


def history(values=None, **changes):
    return case_history(make_series(values or stepped(), **changes))


def flat(text):
    return " ".join(text.split())


def test_the_texts_of_a_history(file_regression):
    found = history(
        outcomes={3: Outcome.INVALID, 22: Outcome.SUSPECT},
        injected=(4,),
        torch=lambda number: "2.12.0" if number < 20 else "2.13.0",
    )
    quiet = history(stepped(ratio=1.0), case=make_case(id="another"))
    texts = [text_of(overview_parts([quiet, found]), 80)]
    texts += [text_of(case_parts(found), 80), text_of(range_parts(found), 80)]

    text = "\n\n".join(texts)
    assert max(map(len, text.splitlines())) <= 80
    file_regression.check(text, extension=".txt", encoding="utf-8")


def test_drift_is_shown_per_session():
    values = [value * 1.005**number for number, value in enumerate(stepped(ratio=1.0))]
    text = flat(text_of(case_parts(history(values)), 80))

    assert "drift of +" in text
    assert "+0.50 % a session" in text


def test_quiet_sessions_are_reported_without_a_change():
    text = flat(text_of(case_parts(history(stepped(ratio=1.0))), 80))

    assert "no step and no drift" in text
    assert "against the first 5: no different" in text


def test_case_without_a_usable_session_is_reported():
    found = history([0.01], outcomes={0: Outcome.INVALID})

    assert "slowed on purpose: 1 session" in flat(text_of(case_parts(found), 80))
    assert "no change in 0 sessions" in text_of(range_parts(found), 80)


@pytest.mark.parametrize(
    ("commit", "advice"),
    [
        ("abc", "both sessions have commit abc: the code did not change"),
        (None, "no commit was recorded"),
    ],
)
def test_range_without_two_commits_has_no_bisect_command(commit, advice):
    text = text_of(range_parts(history(commit=lambda n: commit)), 80)

    assert advice in text
    assert "git bisect" not in text


def test_json_contains_the_series_the_trend_and_the_ranges():
    (data,) = json.loads(to_json([history()]))

    assert len(data["series"]["sessions"]) == 40
    assert data["trend"]["changes"][0]["first"] == 20
    assert data["ranges"][0]["before"]["date"].startswith("2026-01-20")


def test_the_median_of_the_step_is_shown_in_ms():
    series = msgspec.structs.replace(make_series(stepped()), metric="median_step_time")

    assert " ms level " in flat(text_of(case_parts(case_history(series)), 80))
