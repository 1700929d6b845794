"""``--ddp-report``: annotations for GitHub, and the message of a failure."""

from __future__ import annotations

import contextlib

import pytest

from ddp_perf.history.records import record_of
from ddp_perf.history.store import HistoryStore
from ddp_perf.plugin.outputs import ReportWriter
from tests.reports import TWO, make_suite_result


@pytest.fixture
def writer(tmp_path):
    return ReportWriter(tmp_path / "report", None, tmp_path)


def test_without_a_directory_no_report_is_written(tmp_path):
    writer = ReportWriter(None, None, tmp_path)
    writer.write([make_suite_result()], complete=True, environ={})

    assert not writer.is_wanted
    assert list(tmp_path.iterdir()) == []


def test_the_last_line_of_the_report_names_the_page(writer, tmp_path):
    writer.write([make_suite_result()], complete=True, environ={})

    assert writer.lines == [f"report: {tmp_path / 'report' / 'index.html'}"]
    assert writer.errors == []


def test_a_github_job_gets_annotations_and_a_summary(writer, tmp_path):
    summary = tmp_path / "step.md"
    summary.write_text("before\n", "utf-8")
    environ = {"GITHUB_ACTIONS": "true", "GITHUB_STEP_SUMMARY": str(summary)}
    writer.write([make_suite_result()], complete=True, environ=environ)

    assert writer.lines[0].startswith(f"::error title={TWO.id}%3A REGRESSION (+20.0 %25)::")
    assert summary.read_text(encoding="utf-8").startswith("before\n## ❌ RED: performance")


def test_a_github_summary_that_cannot_be_written_fails_the_session(writer, tmp_path):
    environ = {"GITHUB_STEP_SUMMARY": str(tmp_path)}
    writer.write([make_suite_result()], complete=True, environ=environ)

    assert writer.errors == ["--ddp-report: GITHUB_STEP_SUMMARY: Is a directory"]


def test_a_broken_self_test_removes_its_curve_and_fails_the_session(writer, tmp_path):
    broken = tmp_path / "artifacts" / "selftest" / "selftest.json"
    broken.parent.mkdir(parents=True)
    broken.write_text("{")
    writer.write([make_suite_result()], complete=True, environ={})

    (error,) = writer.errors
    assert error.startswith(f"--ddp-report: the report lacks the self-test: {broken}: is cut short")
    assert (tmp_path / "report" / "index.html").exists()


def test_the_report_draws_the_history_from_two_sessions_on(tmp_path):
    url = f"sqlite:///{tmp_path / 'history.sqlite'}"
    sessions = [make_suite_result(date=f"2026-01-0{day}T00:00:00+00:00") for day in (1, 2)]
    with contextlib.closing(HistoryStore(url)) as store:
        store.append(map(record_of, sessions))
    writer = ReportWriter(tmp_path / "report", url, tmp_path)
    writer.write(sessions[1:], complete=True, environ={})

    page = (tmp_path / "report" / "index.html").read_text(encoding="utf-8")
    assert writer.errors == []
    # The case that failed has no sessions, and the one that passed has no charts of its own.
    assert page.count("<b>Step time of the last 2 sessions</b>") == 2
    assert '"date":["2026-01-01T00:00Z","2026-01-02T00:00Z"],"value":[15.0,15.0]' in page


def test_a_missing_history_removes_its_plot_and_fails_the_session(tmp_path):
    url = f"sqlite:///{tmp_path / 'gone.sqlite'}"
    writer = ReportWriter(tmp_path / "report", url, tmp_path)
    writer.write([make_suite_result()], complete=True, environ={})

    (error,) = writer.errors
    assert error.startswith("--ddp-report: the report lacks the history: ")
    assert (tmp_path / "report" / "index.html").exists()
