"""The text of a history has every session and every change with its interval."""

from __future__ import annotations

import json
import re

import msgspec
import pytest

from ddp_perf.core.verdict import Outcome
from ddp_perf.history.text import case_text, history_json, overview_text, ranges_text
from ddp_perf.history.trend import case_history
from tests.recorded_sessions import make_series, stepped


def history(values=None, **changes):
    return case_history(make_series(values or stepped(), **changes))


def flat(text):
    return " ".join(text.split())


def test_each_session_has_a_row_with_commit_level_and_verdict():
    text = case_text(history(outcomes={22: Outcome.SUSPECT}), 80)
    rows = [line for line in text.splitlines() if line.startswith("2026-")]

    assert len(rows) == 40
    assert rows[22].split()[:3] == ["2026-01-23", "03:00", f"{22:012x}"]
    assert rows[22].endswith("SUSPECT")
    assert "step +5." in rows[20]
    assert max(map(len, text.splitlines())) <= 80


def test_step_is_shown_with_its_interval_and_dates():
    text = flat(case_text(history(), 80))

    assert re.search(r"step of \+5\.\d % \(99 % interval \+4\.\d % to \+5\.\d %\), between", text)
    assert "between 2026-01-20 and 2026-01-21" in text
    assert "against the first 5: slower" in text


def test_drift_is_shown_per_session():
    values = [value * 1.005**number for number, value in enumerate(stepped(ratio=1.0))]
    text = flat(case_text(history(values), 80))

    assert "drift of +" in text
    assert "+0.50 % a session" in text


def test_quiet_sessions_are_reported_without_a_change():
    text = flat(case_text(history(stepped(ratio=1.0)), 80))

    assert "no step and no drift" in text
    assert "against the first 5: no different" in text


def test_sessions_left_out_are_counted_and_shown():
    text = flat(case_text(history(outcomes={3: Outcome.INVALID}, injected=(4,)), 80))

    assert "left out because disturbed, INVALID or slowed on purpose: 2 sessions" in text
    assert re.search(r"PASS slowed on .*purpose: .*compute:5%", text)


def test_case_without_a_usable_session_is_reported():
    found = history([0.01], outcomes={0: Outcome.INVALID})

    assert "left out because disturbed, INVALID or slowed on purpose: 1 session" in case_text(
        found, 80
    )
    assert "no change in 0 sessions" in ranges_text(found, 80)


def test_range_has_commits_versions_and_the_bisect_command():
    found = history(torch=lambda n: "2.12.0" if n < 20 else "2.13.0")
    text = ranges_text(found, 80)

    assert "before: 2026-01-20 03:00 on host, commit 000000000013" in text
    assert "after: 2026-01-21 03:00 on host, commit 000000000014" in text
    assert "changed: torch 2.12.0 → 2.13.0" in text
    assert "git bisect start 000000000014 000000000013" in text


@pytest.mark.parametrize(
    ("commit", "advice"),
    [
        ("abc", "both sessions have commit abc: the code did not change"),
        (None, "no commit was recorded"),
    ],
)
def test_range_without_two_commits_has_no_bisect_command(commit, advice):
    text = ranges_text(history(commit=lambda n: commit), 80)

    assert advice in text
    assert "changed: none of the recorded versions" in text
    assert "git bisect" not in text


def test_overview_has_a_row_for_each_case_and_names_slower_cases():
    text = overview_text([history(), history(stepped(ratio=1.0))], 80)
    rows = [line for line in text.splitlines() if line.startswith("mlp-")]

    assert re.fullmatch(r"\S+ +40 +10\.\d+ ms +\+5\.\d % +\+5\.\d % +2026-01-21", rows[0])
    assert re.fullmatch(r"\S+ +40 +10\.\d+ ms +\S+ % +–", rows[1])
    assert flat(text).count("slower than the first:") == 1


def test_markup_in_a_name_is_shown_as_text():
    case = make_series([0.01]).case
    series = msgspec.structs.replace(
        make_series(stepped()), case=msgspec.structs.replace(case, case_id="a[bold]b[/bold]")
    )
    found = case_history(series)

    assert "a[bold]b[/bold]" in case_text(found, 80)
    assert "a[bold]b[/bold]" in overview_text([found], 80)


def test_json_contains_the_series_the_trend_and_the_ranges():
    (data,) = json.loads(history_json([history()]))

    assert len(data["series"]["sessions"]) == 40
    assert data["trend"]["changes"][0]["first"] == 20
    assert data["ranges"][0]["before"]["date"].startswith("2026-01-20")


def test_the_median_of_the_step_is_shown_in_ms():
    series = msgspec.structs.replace(make_series(stepped()), metric="median_step_time")

    text = flat(case_text(case_history(series), 80))

    assert "median_step_time" in text
    assert " ms " in text
