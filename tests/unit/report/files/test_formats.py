"""The file formats for other tools: each is valid, and all have the same figures."""

from __future__ import annotations

import csv
import io
import json

import msgspec
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from ddp_perf.render.latex import latex_escaped, table_latex
from ddp_perf.render.markdown import report_markdown
from ddp_perf.report.columns import suite_figures
from ddp_perf.report.files.exporters import (
    action_benchmark_json,
    bencher_json,
    otava_csv,
    otava_yaml,
    prometheus_text,
    summary_csv,
)
from ddp_perf.report.rows import CaseRow, report_summary
from ddp_perf.report.session_report import build_session
from tests.builders import (
    HOSTILE,
    make_hostile_result,
)
from tests.reports import ONE, ONE_LARGE, TWO, TWO_LARGE, make_suite_result


def session_markdown(*suites):
    summary = report_summary(suites, complete=True)
    return report_markdown(build_session(suites, summary, None))


STEPS_MS = {ONE.id: 10.0, TWO.id: 15.0, ONE_LARGE.id: 20.0, TWO_LARGE.id: 30.0}


@pytest.fixture
def summary():
    """Return rows whose 95th percentile differs from the median."""
    summary = report_summary([make_suite_result()], complete=True)
    rows = tuple(msgspec.structs.replace(row, p95_step_s=0.099) for row in summary.rows)
    return msgspec.structs.replace(summary, rows=rows)


@pytest.fixture
def hostile():
    return report_summary([make_hostile_result()], complete=True)


def metrics(text):
    """Return the samples by metric and case."""
    return {
        (sample.name, sample.labels["case"]): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if "case" in sample.labels
    }


def test_every_file_of_other_tools_that_can_has_commit_branch_and_host(summary):
    first = {"commit": "0123456789ab", "branch": "wider-layers", "host": "node7"}
    rows = [msgspec.structs.replace(row, **first) for row in summary.rows]

    heading, figures = csv.reader(io.StringIO(otava_csv(rows)))
    assert dict(zip(heading, figures, strict=True)).items() >= first.items()
    assert yaml.safe_load(otava_yaml(rows))["tests"]["ddp-perf"]["attributes"] == [*first]
    (entry, *_) = json.loads(action_benchmark_json(rows))
    assert entry["extra"].endswith("\ncommit 0123456789ab, branch wider-layers, host node7")
    (info,) = [
        sample.labels
        for family in text_string_to_metric_families(prometheus_text(rows))
        for sample in family.samples
        if sample.name == "ddp_perf_session_info"
    ]
    assert info.items() >= {**first, "suite": "quick"}.items()


def test_every_format_has_the_same_step_time_for_the_same_cases(summary):
    rows = list(csv.DictReader(io.StringIO(summary_csv(summary.rows))))
    heading, figures = csv.reader(io.StringIO(otava_csv(summary.rows)))
    by_format = {
        "csv": {row["case"]: 1e3 * float(row["step_s"]) for row in rows},
        "action": {
            e["name"][6:]: e["value"] for e in json.loads(action_benchmark_json(summary.rows))
        },
        "bencher": {
            name[6:]: measures["latency"]["value"] / 1e6
            for name, measures in json.loads(bencher_json(summary.rows)).items()
        },
        "otava": {
            name[6:]: float(value) for name, value in zip(heading[4:], figures[4:], strict=True)
        },
        "prometheus": {
            case: 1e3 * value
            for (name, case), value in metrics(prometheus_text(summary.rows)).items()
            if name == "ddp_perf_step_seconds"
        },
    }

    for format_, steps in by_format.items():
        assert steps == pytest.approx(STEPS_MS), format_


def test_summary_csv_has_every_field_and_leaves_absent_figures_empty(summary):
    rows = list(csv.DictReader(io.StringIO(summary_csv(summary.rows))))

    assert tuple(rows[0]) == CaseRow.__struct_encode_fields__
    assert "status" in rows[0]
    assert rows[0]["speedup"] == ""
    assert float(rows[1]["efficiency"]) == pytest.approx(1 / 1.5)
    assert [row["verdict"] for row in rows] == ["PASS", "REGRESSION", "UNDECIDED", "FAILED"]


def test_hostile_text_is_read_back_from_csv_unchanged(hostile):
    (row,) = csv.DictReader(io.StringIO(summary_csv(hostile.rows), newline=""))
    heading, _ = csv.reader(io.StringIO(otava_csv(hostile.rows), newline=""))

    assert row["case"] == f"mlp-{HOSTILE}"
    assert heading[4] == f"../{HOSTILE}/mlp-{HOSTILE}"


@pytest.mark.parametrize("first", ["=", "+", "-", "@", "\t", "\r", "\n"])
def test_summary_csv_has_no_text_that_a_spreadsheet_runs(summary, first):
    text = f"{first}cmd|' /C calc'!A0"
    row = msgspec.structs.replace(summary.rows[0], case=text, reason=f"a {text}", ratio=-0.5)

    (read,) = csv.DictReader(io.StringIO(summary_csv([row]), newline=""))

    assert (read["case"], read["reason"], read["ratio"]) == (f"'{text}", f"a {text}", "-0.5")


def test_hostile_labels_are_read_back_from_prometheus_unchanged(hostile):
    found = metrics(prometheus_text(hostile.rows))

    assert ("ddp_perf_red", f"mlp-{HOSTILE}") in found


def test_prometheus_text_has_red_cases_and_the_time(summary):
    found = metrics(prometheus_text(summary.rows))

    assert found["ddp_perf_red", TWO.id] == 1
    assert found["ddp_perf_red", ONE.id] == 0
    assert found["ddp_perf_ratio", TWO.id] == 1.2
    assert found["ddp_perf_measured_timestamp_seconds", ONE.id] == 1767323045
    assert ("ddp_perf_scaling_efficiency_ratio", ONE.id) not in found


def test_bencher_json_has_the_range_of_launches_in_nanoseconds(summary):
    latency = json.loads(bencher_json(summary.rows))[f"quick/{TWO.id}"]["latency"]

    assert latency == pytest.approx({"value": 15e6, "lower_value": 14.9e6, "upper_value": 15.1e6})


def test_otava_yaml_names_each_column_and_its_direction(summary):
    test = yaml.safe_load(otava_yaml(summary.rows))["tests"]["ddp-perf"]
    heading, _ = csv.reader(io.StringIO(otava_csv(summary.rows)))

    assert [test["time_column"], *test["attributes"], *test["metrics"]] == heading
    assert all(metric["direction"] == -1 for metric in test["metrics"].values())


def test_every_format_accepts_no_rows():
    nothing = report_summary([], complete=True)

    assert len(summary_csv(nothing.rows).splitlines()) == 1
    assert otava_csv(nothing.rows) == "time,commit,branch,host\r\n"
    assert json.loads(bencher_json(nothing.rows)) == {}
    assert json.loads(action_benchmark_json(nothing.rows)) == []
    assert metrics(prometheus_text(nothing.rows)) == {}
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
