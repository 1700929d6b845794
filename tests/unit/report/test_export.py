"""The formats of the export: each is valid, and all have the same figures."""

from __future__ import annotations

import csv
import io
import json

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from ddp_perf.core.baseline import instant
from ddp_perf.core.verdict import Outcome
from ddp_perf.errors import HistoryError
from ddp_perf.history.records import record_of
from ddp_perf.report.export import (
    action_benchmark_json,
    asv_files,
    bencher_json,
    history_csv,
    otava_files,
    otlp_lines,
    prometheus_text,
)
from tests.builders import HOSTILE, make_case, make_environment
from tests.recorded_sessions import make_recorded_session
from tests.reports import ONE, ONE_LARGE, TWO, make_suite_result

MACHINE = "cpu-some-2c-host"
STEPS_S = {ONE.id: 0.01, TWO.id: 0.015, ONE_LARGE.id: 0.02}  # a launch of TWO_LARGE failed
NEWEST = record_of(
    make_suite_result(date="2026-01-12T03:04:05+00:00", environment=make_environment(branch="main"))
)
COMMITS = {f"{number:012x}".ljust(40, "f"): 1_700_000_000 + number for number in range(20)}
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)


def replace(value, **changes):
    return msgspec.structs.replace(value, **changes)


def with_figure(record, **changes):
    """Return the record with other fields of its only figure."""
    (case,) = record.cases
    figures = (replace(case.figures[0], **changes),)
    return replace(record, cases=(replace(case, figures=figures),))


def slowed(record):
    return replace(record, info=replace(record.info, injections=("compute:5%",)))


def nights(*steps, case=ONE, **environment):
    return [make_recorded_session(case, n, step, **environment) for n, step in enumerate(steps)]


def rows_of(text):
    return list(csv.DictReader(io.StringIO(text, newline="")))


def metrics_of(text):
    """Return the samples of the Prometheus text by name and case, as the client reads them."""
    return {
        (sample.name, sample.labels.get("case")): (sample.value, sample.labels)
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


class Attribute(msgspec.Struct, forbid_unknown_fields=True):
    key: str
    value: dict[str, str]


class Point(msgspec.Struct, forbid_unknown_fields=True):
    timeUnixNano: str  # noqa: N815 – a 64-bit integer is a string in OTLP/JSON
    asDouble: float  # noqa: N815
    attributes: list[Attribute]


class Points(msgspec.Struct, forbid_unknown_fields=True):
    dataPoints: list[Point]  # noqa: N815


class Metric(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    unit: str
    description: str
    gauge: Points


class Scope(msgspec.Struct, forbid_unknown_fields=True):
    scope: dict[str, str]
    metrics: list[Metric]


class Resource(msgspec.Struct, forbid_unknown_fields=True):
    resource: dict[str, list[Attribute]]
    scopeMetrics: list[Scope]  # noqa: N815


class MetricsData(msgspec.Struct, forbid_unknown_fields=True):
    """The part of OTLP that gauges need, by opentelemetry/proto/metrics/v1/metrics.proto."""

    resourceMetrics: list[Resource]  # noqa: N815


def points_of(line):
    """Return the points of a session in OTLP by name, each with its labels."""
    (resource,) = msgspec.json.decode(line, type=MetricsData).resourceMetrics
    return {
        metric.name: [
            (point, {one.key: one.value["stringValue"] for one in point.attributes})
            for point in metric.gauge.dataPoints
        ]
        for metric in resource.scopeMetrics[0].metrics
    }


def test_every_format_has_the_same_step_time_for_the_same_cases():
    (line,) = otlp_lines([NEWEST]).splitlines()
    otava = dict(otava_files([NEWEST]))
    tests = yaml.safe_load(otava["otava.yaml"])["tests"]
    asv = dict(asv_files([with_commit(NEWEST, 1)], ".", "main", COMMITS))
    (results,) = (json.loads(text) for name, text in asv.items() if "2026-01-12" in name)
    values, (cases,) = results["results"]["quick.step_time"]
    by_format = {
        "csv": {
            row["case"]: float(row["value"])
            for row in rows_of(history_csv([NEWEST]))
            if row["metric"] == "step_time"
        },
        "otava": {
            name.split("/")[2]: float(rows_of(otava[test["file"]])[0]["step_time"])
            for name, test in tests.items()
            if "step_time" in test["metrics"]
        },
        "asv": dict(zip(cases, values, strict=True)),
        "bencher": {
            name.split("/")[2]: measures["latency"]["value"] / 1e9
            for name, measures in json.loads(bencher_json([NEWEST])).items()
        },
        "action": {
            entry["name"].split("/")[2]: entry["value"] / 1e3
            for entry in json.loads(action_benchmark_json([NEWEST]))
        },
        "prometheus": {
            case: value
            for (name, case), (value, _) in metrics_of(prometheus_text([NEWEST])).items()
            if name == "ddp_perf_step_time_seconds"
        },
        "otlp": {
            labels["case"]: point.asDouble
            for point, labels in points_of(line)["ddp_perf.step_time"]
        },
    }

    for format_, steps in by_format.items():
        assert steps == pytest.approx(STEPS_S), format_


def with_commit(record, number):
    environment = replace(record.info.environment, commit=f"{number:012x}")
    return replace(record, info=replace(record.info, environment=environment))


def test_csv_has_a_row_for_every_figure_with_its_verdict_and_its_origin():
    rows = rows_of(history_csv([NEWEST]))

    assert len(rows) == sum(len(case.figures) for case in NEWEST.cases)
    row = next(row for row in rows if (row["case"], row["metric"]) == (TWO.id, "step_time"))
    assert (
        row.items()
        >= {
            "date": "2026-01-12T03:04:05+00:00",
            "accelerator": MACHINE,
            "commit": "0123456789ab",
            "branch": "main",
            "unit": "s",
            "low": "0.0149",
            "high": "0.0151",
            "launches": "3",
            "verdict": "REGRESSION",
            "ratio": "1.2",
        }.items()
    )


def test_what_is_useless_is_in_the_csv_and_in_no_other_format():
    good, disturbed, invalid, injected = nights(0.01, 0.02, 0.03, 0.04)
    disturbed = with_figure(disturbed, disturbance="others used the CPU")
    verdict = replace(good.cases[0].figures[0].verdict, outcome=Outcome.INVALID)
    records = [good, disturbed, with_figure(invalid, verdict=verdict), slowed(injected)]

    assert [row["value"] for row in rows_of(history_csv(records))] == [
        *("0.01", "0.02", "0.03", "0.04")
    ]
    (_, text), _ = otava_files(records)
    assert [row["step_time"] for row in rows_of(text)] == ["0.01"]
    assert "ddp_perf_step_time_seconds" not in prometheus_text(records)  # INVALID is the newest
    assert json.loads(bencher_json(records)) == {}
    assert json.loads(action_benchmark_json(records)) == []
    steps = [points_of(line).get("ddp_perf.step_time") for line in otlp_lines(records).splitlines()]
    assert [bool(found) for found in steps] == [True, False, False]


def test_other_work_is_counted_in_the_csv_and_begins_the_series_anew():
    first, second, third = nights(0.01, 0.02, 0.03)
    other = replace(third.cases[0], work={**third.cases[0].work, "batch_size": 7})
    records = [first, second, replace(third, cases=(other,))]

    assert [row["work"] for row in rows_of(history_csv(records))] == ["1", "1", "2"]
    (_, text), _ = otava_files(records)
    assert [row["step_time"] for row in rows_of(text)] == ["0.03"]


def test_otava_has_a_test_without_gaps_for_each_metric_of_a_case():
    """Otava finds nothing in a series with an empty figure."""
    both = nights(0.01, 0.011)
    both[0] = replace(both[0], cases=(*both[0].cases, *nights(0.02, case=TWO)[0].cases))
    files = dict(otava_files(both))
    config = yaml.safe_load(files.pop("otava.yaml"))

    tests = config["tests"]
    assert config["test_groups"] == {"ddp-perf": [*tests]}
    assert {test["file"] for test in tests.values()} == files.keys()
    counts = {}
    for name, test in tests.items():
        rows = rows_of(files[test["file"]])
        (metric,) = test["metrics"]
        assert [*rows[0]] == [test["time_column"], *test["attributes"], metric]
        counts[name] = [float(row[metric]) for row in rows]
    assert counts == {
        f"{MACHINE}/quick/{ONE.id}/step_time": [0.01, 0.011],
        f"{MACHINE}/quick/{TWO.id}/step_time": [0.02],
    }


def test_asv_has_the_sessions_of_the_repositorys_commits():
    records = nights(0.01, 0.011, 0.012)
    changed = with_commit(records[2], 2)
    environment = replace(changed.info.environment, commit=f"{2:012x}+")
    changed = replace(changed, info=replace(changed.info, environment=environment))
    files = dict(asv_files([*records[:2], changed], "/code", "main", COMMITS))

    assert json.loads(files["asv.conf.json"])["repo"] == "/code"
    found = [json.loads(text) for name, text in files.items() if "T03" in name]
    assert [(one["commit_hash"], one["date"]) for one in found] == [
        (commit, 1000 * date) for commit, date in [*COMMITS.items()][:2]
    ]
    benchmarks = json.loads(files["results/benchmarks.json"])
    assert benchmarks["quick.step_time"]["params"] == [[ONE.id]]
    assert benchmarks["quick.step_time"]["unit"] == "seconds"
    machines = [json.loads(text) for name, text in files.items() if name.endswith("machine.json")]
    assert {one["params"]["machine"] for one in found} == {one["machine"] for one in machines}


def test_asv_refuses_a_repository_without_the_commit_of_any_session():
    with pytest.raises(HistoryError, match="/other: it has the commit of no session"):
        list(asv_files(nights(0.01), "/other", "main", {"a" * 40: 1}))


def test_bencher_json_has_the_range_of_launches_in_nanoseconds():
    measures = json.loads(bencher_json([NEWEST]))[f"{MACHINE}/quick/{TWO.id}"]

    assert measures["latency"] == pytest.approx(
        {"value": 15e6, "lower_value": 14.9e6, "upper_value": 15.1e6}
    )
    assert "peak-memory" in measures


def test_github_action_benchmark_has_the_verdict_and_the_origin():
    entries = json.loads(action_benchmark_json([NEWEST]))

    (entry,) = (one for one in entries if one["name"].endswith(TWO.id))
    assert (entry["unit"], entry["range"]) == ("ms/step", "± 0.1")
    verdict, origin = entry["extra"].splitlines()
    assert verdict.startswith("REGRESSION: ")
    assert origin == "commit 0123456789ab, branch main, host host"


def test_prometheus_text_has_red_cases_and_the_time():
    found = metrics_of(prometheus_text([NEWEST]))

    assert found["ddp_perf_red_cases", None][0] == 1
    assert found["ddp_perf_cases", None][0] == 3
    assert found["ddp_perf_session_timestamp_seconds", None][0] == 1768187045
    assert found["ddp_perf_change_ratio", TWO.id][0] == 1.2
    info = found["ddp_perf_session_info", None][1]
    assert info.items() >= {"commit": "0123456789ab", "branch": "main", "host": "host"}.items()
    verdicts = {
        (labels["case"], labels["metric"], labels["outcome"])
        for family in text_string_to_metric_families(prometheus_text([NEWEST]))
        for _, labels, *_ in family.samples
        if family.name == "ddp_perf_verdict"
    }
    assert verdicts >= {(TWO.id, "step_time", "REGRESSION"), (TWO.id, "tail", "PASS")}


def test_an_acknowledged_regression_is_not_counted_as_red():
    (record,) = nights(0.01, outcome=Outcome.REGRESSION)
    verdict = replace(record.cases[0].figures[0].verdict, acknowledged="a larger model")
    known = with_figure(record, verdict=verdict)

    found = [metrics_of(prometheus_text([one])) for one in (record, known)]
    labels = [metrics["ddp_perf_verdict", ONE.id][1] for metrics in found]

    assert [metrics["ddp_perf_red_cases", None][0] for metrics in found] == [1, 0]
    assert [each["acknowledged"] for each in labels] == ["no", "yes"]
    assert rows_of(history_csv([known]))[0]["acknowledged"] == "a larger model"


def test_prometheus_text_has_the_newest_session_of_each_machine():
    records = [*nights(0.01, 0.011, host="a"), *nights(0.02, host="b")]
    samples = {
        (sample.name, sample.labels["host"]): sample.value
        for family in text_string_to_metric_families(prometheus_text(records))
        for sample in family.samples
    }

    assert [samples["ddp_perf_step_time_seconds", host] for host in "ab"] == [0.011, 0.02]
    assert [samples["ddp_perf_sessions", host] for host in "ab"] == [2, 1]


def test_otlp_has_every_session_at_its_time_and_as_prometheus_has_it():
    records = [*nights(0.01, 0.011), NEWEST]
    lines = [points_of(line) for line in otlp_lines(records).splitlines()]

    for record, points in zip(records, lines, strict=True):
        times = {int(point.timeUnixNano) for found in points.values() for point, _ in found}
        assert times == {10**9 * int(instant(record.info.date).timestamp())}
    assert [points["ddp_perf.sessions"][0][0].asDouble for points in lines] == [1, 2, 3]
    prometheus = sorted(
        (sample.value, sorted(sample.labels.items()))
        for family in text_string_to_metric_families(prometheus_text(records))
        for sample in family.samples
    )
    assert prometheus == sorted(
        (point.asDouble, sorted(labels.items()))
        for found in lines[-1].values()
        for point, labels in found
    )


@given(TEXTS, TEXTS)
def test_any_text_is_read_back_unchanged(name, host):
    case = make_case(id=f"x{name}", suite=f"x{name}")
    records = nights(0.01, case=case, host=f"x{host}", branch=f"x{name}")

    (row,) = rows_of(history_csv(records))
    assert (row["case"], row["host"]) == (case.id, f"x{host}")
    (_, labels) = metrics_of(prometheus_text(records))["ddp_perf_step_time_seconds", case.id]
    assert (labels["suite"], labels["host"]) == (case.suite, f"x{host}")
    ((_, labels),) = points_of(otlp_lines(records).splitlines()[0])["ddp_perf.step_time"]
    assert (labels["case"], labels["host"]) == (case.id, f"x{host}")
    (_, text), (_, config) = otava_files(records)
    assert rows_of(text)[0]["branch"] == f"x{name}"
    assert [*yaml.safe_load(config)["tests"]] == [f"{MACHINE}/{case.suite}/{case.id}/step_time"]
    assert [*json.loads(bencher_json(records))] == [f"{MACHINE}/{case.suite}/{case.id}"]


@pytest.mark.parametrize("host", [HOSTILE, "../..", "."])
def test_no_text_leaves_the_directory(host):
    records = nights(0.01, case=make_case(id=f"../{HOSTILE}", suite="../x"), host=host)
    asv = [name for name, _ in asv_files(records, ".", "main", COMMITS)]

    assert all("/" not in name for name, _ in otava_files(records))
    assert not any({"..", "."} & {*name.split("/")} for name in asv)
    assert {name.count("/") for name in asv} == {0, 1, 2}
