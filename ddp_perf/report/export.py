"""The formats of ``ddp-perf export``: each function makes one from recorded sessions."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import yaml

from ddp_perf.core.baseline import CONTROL, TYPICAL_STEP, instant
from ddp_perf.core.metric import EXACT, METRICS, STEP_TIME, metric_title
from ddp_perf.errors import HistoryError
from ddp_perf.history.records import CaseRecord, RecordedFigure, SessionInfo, SessionRecord
from ddp_perf.report.tables import csv_text

# What the formats share. All records are oldest first.


_UNITS = {metric.name: metric.unit for metric in METRICS} | {TYPICAL_STEP: "s", CONTROL: "s"}
_NO_WORD = re.compile(r"\W", re.ASCII)
_UNSAFE = re.compile(r"[^A-Za-z0-9_.-]")  # in a file's name


class Entry(NamedTuple):
    """A figure with its session and its case."""

    session: SessionInfo
    case: CaseRecord
    figure: RecordedFigure

    @property
    def series(self) -> tuple[str, str, str, str]:
        """The accelerator, the suite, the case and the metric."""
        accelerator = self.session.environment.accelerator_key
        return accelerator, self.session.suite, self.case.case_id, self.figure.metric


def _entries(records: Iterable[SessionRecord]) -> Iterator[Entry]:
    for record in records:
        for case in record.cases:
            for figure in case.figures:
                yield Entry(record.info, case, figure)


def _natural(records: Iterable[SessionRecord]) -> list[SessionRecord]:
    """Return the sessions that nothing slowed on purpose."""
    return [record for record in records if not record.info.injections]


def _sound(records: Sequence[SessionRecord]) -> Iterator[Entry]:
    """Yield what has a usable figure, of each case only with the work that it had last."""
    natural = _natural(records)
    work = {entry.series: entry.case.work for entry in _entries(natural)}
    for entry in _entries(natural):
        if entry.figure.is_sound and entry.case.work == work[entry.series]:
            yield entry


def _newest(
    records: Sequence[SessionRecord], key: Callable[[SessionInfo], tuple[str, ...]]
) -> list[SessionRecord]:
    return list({key(record.info): record for record in _natural(records)}.values())


def _of_suite(info: SessionInfo) -> tuple[str, ...]:
    return info.environment.accelerator_key, info.suite


def _of_host(info: SessionInfo) -> tuple[str, ...]:
    return info.environment.accelerator_key, info.environment.host, info.suite


def _unit(metric: str) -> str:
    return _UNITS.get(metric, "")


def _interval(bounds: Sequence[float] | None) -> tuple[float | None, float | None]:
    return (min(bounds), max(bounds)) if bounds else (None, None)


# ``csv``: a row for each metric of each case of each session, disturbed ones too.


_COLUMNS = (
    *("date", "suite", "accelerator", "host", "commit", "branch", "torch", "job"),
    *("case", "work", "metric", "unit", "value", "low", "high", "launches"),
    *("verdict", "ratio", "ratio_low", "ratio_high", "baseline", "acknowledged"),
    *("disturbance", "injections"),
)


def history_csv(records: Sequence[SessionRecord]) -> str:
    """Return all figures in long form.

    ``low`` and ``high`` are those of the launches. ``work`` counts the fingerprints of a case: its
    figures are comparable only within one.
    """
    works: dict[tuple[str, str], list[object]] = {}
    return csv_text(_COLUMNS, (_row(entry, works) for entry in _entries(records)))


def _row(entry: Entry, works: dict[tuple[str, str], list[object]]) -> list[object]:
    session, case, figure = entry
    where, verdict = session.environment, figure.verdict
    known = works.setdefault((where.accelerator_key, case.case_id), [])
    if case.work not in known:
        known.append(case.work)
    return [
        *(session.date, session.suite, where.accelerator_key, where.host),
        *(where.commit, where.branch, where.torch, session.job),
        *(case.case_id, known.index(case.work) + 1, figure.metric, _unit(figure.metric)),
        *(figure.value, *_interval(figure.launches), len(figure.launches)),
        *(verdict and verdict.outcome.value, verdict and verdict.ratio),
        *_interval(verdict.interval if verdict else None),
        *(figure.baseline, verdict and verdict.acknowledged),
        *(figure.disturbance, " ".join(session.injections)),
    ]


# ``otava``: Apache Otava's CSV import. It accepts no empty figure, and few sessions have all cases
# and metrics, so each metric of a case is a test with a file of its own.
#
# https://otava.apache.org/docs/csv/


OTAVA_GROUP = "ddp-perf"
_ATTRIBUTES = ("commit", "branch", "host")


def otava_files(records: Sequence[SessionRecord]) -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each CSV file, and of ``otava.yaml``, which names them."""
    rows: dict[tuple[str, ...], list[list[object]]] = {}
    for entry in _sound(records):
        where = entry.session.environment
        about = [getattr(where, name) or "unknown" for name in _ATTRIBUTES]
        rows.setdefault(entry.series, []).append([entry.session.date, *about, entry.figure.value])
    tests = {}
    for number, (series, lines) in enumerate(sorted(rows.items())):
        metric = series[-1]
        file = f"{number:04}-{_UNSAFE.sub('_', '-'.join(series))[:200]}.csv"
        tests["/".join(series)] = {
            "type": "csv",
            "file": file,
            "time_column": "time",
            "attributes": [*_ATTRIBUTES],
            "metrics": {metric: {"column": metric, "direction": -1, "scale": 1.0}},
        }
        yield file, csv_text(["time", *_ATTRIBUTES, metric], lines)
    config = {"tests": tests, "test_groups": {OTAVA_GROUP: [*tests]}}
    yield "otava.yaml", yaml.safe_dump(config, sort_keys=False, allow_unicode=True)


# ``asv``: a results file for each session; asv averages the sessions of one commit. The cases are
# the parameter of a benchmark.
#
# https://asv.readthedocs.io/en/stable/dev.html#benchmark-suite-layout-and-file-formats


_ASV_UNITS = {"s": ("time", "seconds"), "bytes": ("memory", "bytes")}


def asv_files(
    records: Sequence[SessionRecord], repository: str, branch: str, commits: Mapping[str, int]
) -> Iterator[tuple[str, str]]:
    """Yield the name and the text of ``asv.conf.json`` and of each file below ``results/``.

    ``commits`` has the date of each commit of the repository. A session of another commit is left
    out, as is one whose tree differed from its commit. Raises HistoryError if none is left.
    """
    known = {commit[:12]: commit for commit in commits}
    found: dict[tuple[str, str, str], list[Entry]] = {}
    for entry in _sound(records):
        where = entry.session.environment
        if (commit := known.get(where.commit or "")) is not None:
            machine = _UNSAFE.sub("_", f"{where.accelerator_key}-{where.host}")
            found.setdefault((machine, entry.session.date, commit), []).append(entry)
    if not found:
        raise HistoryError(
            f"{repository}: it has the commit of no session, and asv shows sessions by commit; run"
            " the command in the checkout of the code that was measured"
        )
    benchmarks: dict[str, list[str]] = {}
    for (machine, date, commit), entries in found.items():
        session = f"{commit[:8]}-{_UNSAFE.sub('', date)}"
        where = entries[0].session.environment
        about = {"machine": machine, "cpu": where.accelerator, "os": where.os, "version": 1}
        yield f"results/{machine}/machine.json", json.dumps(about)
        results = _asv_results(machine, commit, commits[commit], entries)
        yield f"results/{machine}/{session}.json", json.dumps(results)
        for entry in entries:
            cases = benchmarks.setdefault(_asv_name(entry), [])
            cases += [entry.case.case_id] * (entry.case.case_id not in cases)
    described = {name: _asv_benchmark(name, cases) for name, cases in benchmarks.items()}
    yield "results/benchmarks.json", json.dumps({**described, "version": 2})
    config = {"version": 1, "project": "ddp-perf", "repo": repository, "branches": [branch]}
    yield "asv.conf.json", json.dumps(config, indent=1)


def _asv_name(entry: Entry) -> str:
    return f"{_UNSAFE.sub('_', entry.session.suite)}.{entry.figure.metric}"


def _asv_results(
    machine: str, commit: str, committed: int, entries: Sequence[Entry]
) -> dict[str, object]:
    by_name: dict[str, dict[str, float | None]] = {}
    for entry in entries:
        by_name.setdefault(_asv_name(entry), {})[entry.case.case_id] = entry.figure.value
    return {
        "commit_hash": commit,
        "date": 1000 * committed,
        "env_name": entries[0].session.date,
        "params": {"machine": machine},
        "python": entries[0].session.environment.python,
        "requirements": {},
        "env_vars": {},
        "result_columns": ["result", "params"],
        "results": {name: [[*values.values()], [[*values]]] for name, values in by_name.items()},
        "version": 2,
    }


def _asv_benchmark(name: str, cases: Sequence[str]) -> dict[str, object]:
    metric = name.rpartition(".")[2]
    kind, unit = _ASV_UNITS.get(_unit(metric), ("track", _unit(metric)))
    return {
        "name": name,
        "code": metric_title(metric),
        "param_names": ["case"],
        "params": [[*cases]],
        "type": kind,
        "unit": unit,
    }


# ``bencher``: Bencher Metric Format, for ``bencher run --adapter json --file FILE``.
#
# https://bencher.dev/docs/reference/bencher-metric-format/


_NS = 1e9  # Bencher's measure ``latency`` is in nanoseconds


def bencher_json(records: Sequence[SessionRecord]) -> str:
    """Return all metrics of the newest session of each suite, with the range of their launches."""
    benchmarks: dict[str, dict[str, dict[str, float]]] = {}
    for entry in _sound(_newest(records, _of_suite)):
        *case, metric = entry.series
        name, scale = ("latency", _NS) if metric == STEP_TIME.name else (metric, 1.0)
        low, high = _interval(entry.figure.launches)
        found = {"value": entry.figure.value, "lower_value": low, "upper_value": high}
        measure = {key: scale * value for key, value in found.items() if value is not None}
        benchmarks.setdefault("/".join(case), {})[name.replace("_", "-")] = measure
    return json.dumps(benchmarks, indent=1, allow_nan=False) + "\n"


# ``github-action-benchmark``: its tool ``customSmallerIsBetter``.
#
# https://github.com/benchmark-action/github-action-benchmark


def action_benchmark_json(records: Sequence[SessionRecord]) -> str:
    """Return the step time of each case in the newest session of each suite, in ms."""
    entries = [
        {
            "name": "/".join(entry.series[:-1]),
            "unit": "ms/step",
            "value": 1e3 * (entry.figure.value or 0.0),
            "range": f"± {500 * (max(launches) - min(launches)):.3g}",
            "extra": "\n".join(_about(entry)),
        }
        for entry in _sound(_newest(records, _of_suite))
        if entry.figure.metric == STEP_TIME.name and (launches := entry.figure.launches)
    ]
    return json.dumps(entries, indent=1, allow_nan=False) + "\n"


def _about(entry: Entry) -> Iterator[str]:
    if verdict := entry.figure.verdict:
        yield f"{verdict.outcome.value}: {verdict.reason}"
    where = entry.session.environment
    known = (("commit", where.commit), ("branch", where.branch), ("host", where.host))
    yield ", ".join(f"{name} {value}" for name, value in known if value)


# Gauges of a session, for ``prometheus`` and ``otlp``.


# By unit of the history: the suffix of a name in Prometheus, and the code of UCUM in OpenTelemetry.
_GAUGE_UNITS = {
    "s": ("seconds", "s"),
    "bytes": ("bytes", "By"),
    "J": ("joules", "J"),
    "ratio": ("ratio", "1"),
    "": ("", "1"),
}


class Gauge(NamedTuple):
    """One name with its unit and its meaning, as both formats have it."""

    name: str
    unit: str
    meaning: str


class Sample(NamedTuple):
    """The value of a gauge in one session."""

    gauge: Gauge
    labels: Mapping[str, str]
    value: float


_SESSIONS = Gauge("sessions", "", "Sessions of the suite on this machine so far.")
_CASES = Gauge("cases", "", "Cases that the session measured.")
_RED = Gauge("red_cases", "", "Cases with a metric that got worse, and was not acknowledged.")
_TIME = Gauge("session_timestamp", "s", "When the session began.")
# The code has labels of its own: in those of every gauge, each commit would begin a new series.
_INFO = Gauge("session_info", "", "1 for the code that the session measured.")
_VERDICT = Gauge("verdict", "", "1 for the outcome of the metric.")
_RATIO = Gauge("change", "ratio", "The session divided by its baseline.")


def _samples(record: SessionRecord, sessions: int) -> Iterator[Sample]:
    where = record.info.environment
    names = ("accelerator", "host", "suite")
    machine = dict(zip(names, _of_host(record.info), strict=True))
    yield Sample(_SESSIONS, machine, sessions)
    yield Sample(_CASES, machine, len(record.cases))
    yield Sample(_RED, machine, sum(map(_is_red, record.cases)))
    yield Sample(_TIME, machine, instant(record.info.date).timestamp())
    code = {"commit": where.commit or "", "branch": where.branch or "", "torch": where.torch}
    yield Sample(_INFO, {**machine, **code}, 1)
    for _, case, figure in _entries([record]):
        labels = {**machine, "case": case.case_id}
        yield from _of_figure(figure, labels, {**labels, "metric": figure.metric})


def _of_figure(
    figure: RecordedFigure, case: Mapping[str, str], metric: Mapping[str, str]
) -> Iterator[Sample]:
    if figure.metric not in EXACT:
        unit, title = _unit(figure.metric), metric_title(figure.metric)
        if figure.value is not None and figure.is_sound:
            yield Sample(Gauge(figure.metric, unit, f"{title}."), case, figure.value)
        if figure.baseline is not None:
            gauge = Gauge(f"baseline_{figure.metric}", unit, f"{title}: the baseline.")
            yield Sample(gauge, case, figure.baseline)
    if (verdict := figure.verdict) is not None:
        acknowledged = "no" if verdict.acknowledged is None else "yes"
        outcome = {"outcome": verdict.outcome.value, "acknowledged": acknowledged}
        yield Sample(_VERDICT, {**metric, **outcome}, 1.0)
        if verdict.ratio is not None:
            yield Sample(_RATIO, metric, verdict.ratio)


def _is_red(case: CaseRecord) -> bool:
    verdicts = (figure.verdict for figure in case.figures)
    return any(one and one.outcome.is_red and one.acknowledged is None for one in verdicts)


# ``prometheus``: for node_exporter's textfile collector.
#
# https://prometheus.io/docs/instrumenting/exposition_formats/


def prometheus_text(records: Sequence[SessionRecord]) -> str:
    """Return the gauges of the newest session of each suite on each host."""
    sessions = Counter(_of_host(record.info) for record in _natural(records))
    families: dict[Gauge, list[Sample]] = {}
    for record in _newest(records, _of_host):
        for sample in _samples(record, sessions[_of_host(record.info)]):
            families.setdefault(sample.gauge, []).append(sample)
    lines = (line for gauge, found in families.items() for line in _family(gauge, found))
    return "".join(f"{line}\n" for line in lines)


def _family(gauge: Gauge, samples: Iterable[Sample]) -> Iterator[str]:
    suffix = _GAUGE_UNITS[gauge.unit][0]
    name = "_".join(filter(None, ("ddp_perf", _NO_WORD.sub("_", gauge.name), suffix)))
    yield f"# HELP {name} {_escaped(gauge.meaning)}"
    yield f"# TYPE {name} gauge"
    for sample in samples:
        yield f"{name}{{{_labels(sample.labels)}}} {sample.value!r}"


def _labels(labels: Mapping[str, str]) -> str:
    return ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


# ``otlp``: OTLP/JSON, a line for each session, for the collector's receiver ``otlpjsonfile``. The
# SDKs of OpenTelemetry take the time of the export, and have no way to give that of a session.
#
# https://opentelemetry.io/docs/specs/otel/protocol/file-exporter/


def otlp_lines(records: Sequence[SessionRecord]) -> str:
    """Return the gauges of all sessions, each with the time at which the session began."""
    sessions: Counter[tuple[str, ...]] = Counter()
    lines = []
    for record in _natural(records):
        sessions[_of_host(record.info)] += 1
        lines.append(_otlp_session(record, sessions[_of_host(record.info)]))
    return "".join(f"{json.dumps(line, allow_nan=False)}\n" for line in lines)


def _otlp_session(record: SessionRecord, sessions: int) -> dict[str, Any]:
    nanoseconds = 10**9 * int(instant(record.info.date).timestamp())
    points: dict[Gauge, list[dict[str, Any]]] = {}
    for sample in _samples(record, sessions):
        point = {
            "timeUnixNano": str(nanoseconds),
            "asDouble": sample.value,
            "attributes": _attributes(sample.labels),
        }
        points.setdefault(sample.gauge, []).append(point)
    metrics = [
        {
            "name": f"ddp_perf.{gauge.name}",
            "unit": _GAUGE_UNITS[gauge.unit][1],
            "description": gauge.meaning,
            "gauge": {"dataPoints": found},
        }
        for gauge, found in points.items()
    ]
    return {
        "resourceMetrics": [
            {
                "resource": {"attributes": _attributes({"service.name": "ddp-perf"})},
                "scopeMetrics": [{"scope": {"name": "ddp_perf"}, "metrics": metrics}],
            }
        ]
    }


def _attributes(labels: Mapping[str, str]) -> list[dict[str, Any]]:
    return [{"key": name, "value": {"stringValue": value}} for name, value in labels.items()]
