"""The table of what each technique gains, in the terminal and in each file of a report."""

from __future__ import annotations

import csv
import io

import pytest

from ddp_perf.render.markdown import report_markdown
from ddp_perf.render.page import report_page
from ddp_perf.render.terminal import report_text, text_of
from ddp_perf.report.directory import write_report
from ddp_perf.report.gains import gain_parts
from ddp_perf.report.rows import report_summary
from ddp_perf.report.session_page import build_page
from ddp_perf.report.session_report import build_session
from ddp_perf.report.tables import techniques_csv
from tests.builders import make_cases, make_measurement, make_probe, make_result
from tests.reports import make_source


def make_compared(world_sizes=(1, 2), launches=2):
    """Return a suite in which bf16 is twice as fast, with half of the communication and memory."""
    cases = make_cases(
        techniques={"bf16": {"precision": "bf16"}},
        world_sizes=list(world_sizes),
        batch_sizes=[64, 128],
    )
    return make_result(
        [
            make_measurement(
                case,
                [0.01 / (1 + half)] * launches,
                probe=make_probe(exposed=0.004 / (1 + half)),
                peak_memory=2_000_000 // (1 + half),
            )
            for case in cases
            for half in [case.technique is not None]
        ]
    )


def test_the_tables_of_the_most_ranks_come_first():
    lines = text_of(gain_parts(make_compared()), 80).splitlines()

    assert [line for line in lines if line.startswith("against")] == [
        f"against {base}, by 2 pairs of launches:"
        for base in (
            "ddp-fp32-ws2-b64",
            "ddp-fp32-ws2-b128",
            "none-fp32-ws1-b64",
            "none-fp32-ws1-b128",
        )
    ]
    row = next(line.split() for line in lines if line.startswith("bf16"))
    assert row == [
        *("bf16", "2.00", "[2.00,", "2.00]", "2.00", "50%", "[50,", "50]"),
        *("0.00323", "50%", "[50,", "50]"),
    ]
    base = next(line.split() for line in lines if line.startswith("base"))
    assert base == ["base", "1.00", "4.00", "–", "0.00323", "–"]
    assert max(map(len, lines)) <= 80


def test_a_single_launch_has_no_interval():
    lines = text_of(gain_parts(make_compared(launches=1)), 80).splitlines()
    row = next(line for line in lines if line.startswith("bf16"))

    assert row.split() == ["bf16", "2.00", "2.00", "50%", "0.00323", "50%"]


def test_a_suite_without_techniques_has_no_lines():
    result = make_result([make_measurement(case, [0.01]) for case in make_cases()])
    assert [*gain_parts(result)] == []


def test_every_file_has_the_figures_of_every_table():
    result = make_compared()
    summary = report_summary([result], complete=True)
    rows = list(csv.DictReader(io.StringIO(techniques_csv(summary.gains))))

    assert [row["base"] for row in rows] == [
        *("mlp-none-fp32-ws1-b64", "mlp-ddp-fp32-ws2-b64"),
        *("mlp-none-fp32-ws1-b128", "mlp-ddp-fp32-ws2-b128"),
    ]
    figures = {name: float(value) for name, value in list(rows[1].items())[6:]}
    assert figures == pytest.approx(
        {
            **dict.fromkeys(["speedup", "speedup_low", "speedup_high"], 2.0),
            "communication_s": 0.002,
            **dict.fromkeys(
                ["overhead_reduction", "overhead_reduction_low", "overhead_reduction_high"], 0.5
            ),
            "sent_bytes": 3232,
            "sent_ratio": 1.0,
            "peak_memory": 1e6,
            **dict.fromkeys(["memory_saved", "memory_saved_low", "memory_saved_high"], 0.5),
        }
    )
    assert rows[0]["overhead_reduction"] == ""  # one rank has no communication
    report = build_session([result], summary, None)
    page = report_page(build_page(make_source(result), summary, report)).decode()
    for text in (report_markdown(build_session([result], summary, None)), page):
        assert text.count("2.00 [2.00, 2.00]") + text.count(r"2.00 \[2.00, 2.00\]") == 4
        assert "1 ÷ (1 − overhead reduction)" in text
        assert text.count("by 2 pairs of launches") >= 4
    assert report_text(report, 80).count("what each technique gains") == 0
    assert report_text(report, 80, whole=True).count("what each technique gains") == 1


def test_a_report_has_the_file_only_if_there_is_a_technique(tmp_path):
    write_report(tmp_path / "a", make_source(make_compared()))
    write_report(tmp_path / "b", make_source())

    assert (tmp_path / "a" / "techniques.csv").is_file()
    assert not (tmp_path / "b" / "techniques.csv").exists()
