"""The tables of a report's directory: each is valid, whatever the texts are."""

from __future__ import annotations

import csv
import io

import msgspec
import pytest

from ddp_perf.render.latex import latex_escaped, table_latex
from ddp_perf.render.markdown import report_markdown
from ddp_perf.report.columns import suite_figures
from ddp_perf.report.rows import CaseRow, report_summary
from ddp_perf.report.session_report import build_session
from ddp_perf.report.tables import summary_csv
from tests.builders import HOSTILE, make_hostile_result
from tests.reports import make_suite_result


def session_markdown(*suites):
    summary = report_summary(suites, complete=True)
    return report_markdown(build_session(suites, summary, None))


@pytest.fixture
def summary():
    """Return rows whose 95th percentile differs from the median."""
    summary = report_summary([make_suite_result()], complete=True)
    rows = tuple(msgspec.structs.replace(row, p95_step_s=0.099) for row in summary.rows)
    return msgspec.structs.replace(summary, rows=rows)


@pytest.fixture
def hostile():
    return report_summary([make_hostile_result()], complete=True)


def test_summary_csv_has_every_field_and_leaves_absent_figures_empty(summary):
    rows = list(csv.DictReader(io.StringIO(summary_csv(summary.rows))))

    assert tuple(rows[0]) == CaseRow.__struct_encode_fields__
    assert "status" in rows[0]
    assert [float(row["step_s"]) for row in rows] == [0.01, 0.015, 0.02, 0.03]
    assert rows[0]["speedup"] == ""
    assert float(rows[1]["efficiency"]) == pytest.approx(1 / 1.5)
    assert [row["verdict"] for row in rows] == ["PASS", "REGRESSION", "UNDECIDED", "FAILED"]


def test_hostile_text_is_read_back_from_csv_unchanged(hostile):
    (row,) = csv.DictReader(io.StringIO(summary_csv(hostile.rows), newline=""))

    assert row["case"] == f"mlp-{HOSTILE}"


@pytest.mark.parametrize("first", ["=", "+", "-", "@", "\t", "\r", "\n"])
def test_summary_csv_has_no_text_that_a_spreadsheet_runs(summary, first):
    text = f"{first}cmd|' /C calc'!A0"
    row = msgspec.structs.replace(summary.rows[0], case=text, reason=f"a {text}", ratio=-0.5)

    (read,) = csv.DictReader(io.StringIO(summary_csv([row]), newline=""))

    assert (read["case"], read["reason"], read["ratio"]) == (f"'{text}", f"a {text}", "-0.5")


def test_every_format_accepts_no_rows():
    nothing = report_summary([], complete=True)

    assert len(summary_csv(nothing.rows).splitlines()) == 1
    assert "❔ UNDECIDED: performance\n\nnothing was measured" in session_markdown()
    assert r"\end{tabular}" in table_latex(suite_figures(nothing.rows))


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("a_b & 5 %", r"a\_b \& 5 \%"),
        ("{$#}", r"\{\$\#\}"),
        ("\\~^", r"\textbackslash{}\textasciitilde{}\textasciicircum{}"),
        ("é\n", "U+00E9U+000A"),
    ],
)
def test_latex_escapes_special_characters(text, written):
    assert latex_escaped(text) == written
