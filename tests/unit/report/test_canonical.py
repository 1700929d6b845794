"""What a reader sees of the results that are met most, in each medium."""

from __future__ import annotations

import pytest

from ddp_perf.render.latex import table_latex
from ddp_perf.render.markdown import report_markdown
from ddp_perf.render.page import report_page
from ddp_perf.render.terminal import report_text
from ddp_perf.report.columns import suite_figures
from ddp_perf.report.duel.report import build_duel
from ddp_perf.report.next_steps.session import after_session
from ddp_perf.report.rows import report_summary
from ddp_perf.report.session_page import build_page
from ddp_perf.report.session_report import build_session
from ddp_perf.report.source import ReportSource
from ddp_perf.report.tables import summary_csv
from ddp_perf.report.work_rows import build_work
from tests import canonical
from tests.pages import page_text

OTHERS = {
    "duel": lambda: build_duel(canonical.duel()),
    "work": lambda: build_work(canonical.work()),
}
NAMES = [*canonical.SUITES, *OTHERS]


@pytest.fixture(autouse=True)
def _in_a_project(tmp_path, monkeypatch):
    """Baselines are stored here, under a path that is the same each time."""
    monkeypatch.chdir(tmp_path)


def in_terminal(name):
    if name in OTHERS:
        return report_text(OTHERS[name](), 80)
    return report_text(session(suite_of(name)), 80)


def in_markdown(name):
    return report_markdown(OTHERS[name]() if name in OTHERS else session(suite_of(name)))


def on_page(name):
    if name in OTHERS:
        return page_text(report_page(OTHERS[name]()))
    suite = suite_of(name)
    source, summary = ReportSource(suites=(suite,), complete=True), summary_of(suite)
    return page_text(report_page(build_page(source, summary, session(suite))))


def summary_of(suite):
    return report_summary([suite], complete=True)


def suite_of(name):
    return canonical.SUITES[name]()


def session(suite):
    return build_session([suite], summary_of(suite), after_session([suite]))


@pytest.mark.parametrize("name", NAMES)
def test_on_a_terminal_of_80_columns(name, file_regression):
    text = in_terminal(name)
    assert all(len(line) <= 80 or line.startswith("next: ") for line in text.splitlines())
    file_regression.check(text, extension=".txt", encoding="utf-8")


@pytest.mark.parametrize("name", NAMES)
def test_in_a_comment(name, file_regression):
    file_regression.check(in_markdown(name), extension=".md", encoding="utf-8")


@pytest.mark.parametrize("name", NAMES)
def test_on_the_page(name, file_regression):
    file_regression.check(on_page(name), extension=".txt", encoding="utf-8")


def test_the_report_of_text(file_regression):
    suite = canonical.red_with_cause()
    text = report_text(session(suite), 80, whole=True)
    assert max(map(len, text.splitlines())) <= 80
    file_regression.check(text, extension=".txt", encoding="utf-8")


def test_the_tables_for_other_programs(file_regression):
    rows = report_summary([canonical.red_with_cause()], complete=True).rows
    text = f"{table_latex(suite_figures(rows))}\n{summary_csv(rows)}"
    file_regression.check(text, extension=".txt", encoding="utf-8")
