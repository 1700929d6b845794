"""Files that other tools read: CSV, LaTeX, Prometheus, Bencher, Otava and others."""

from __future__ import annotations

import csv
import datetime
import io
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import yaml

from ddp_perf.render.model import Status
from ddp_perf.report.gains import reduction
from ddp_perf.report.rows import CaseRow
from ddp_perf.session.gains import GainTable, TechniqueGain
from ddp_perf.stats.interval import PairedRatio

# ``ddp_perf.prom``: for node_exporter's textfile collector.
#
# https://prometheus.io/docs/instrumenting/exposition_formats/


# Name without the prefix, help, and the figure of a row.
_GAUGES: tuple[tuple[str, str, Callable[[CaseRow], float | None]], ...] = (
    ("step_seconds", "Typical step, median over launches.", lambda row: row.step_s),
    ("level_seconds", "Level of the step, which is gated.", lambda row: row.level_s),
    (
        "baseline_level_seconds",
        "The baseline's level of the step.",
        lambda row: row.baseline_level_s,
    ),
    (
        "throughput_per_second",
        "Throughput over all ranks, in the unit.",
        lambda row: row.throughput,
    ),
    ("scaling_efficiency_ratio", "Speed-up divided by ranks.", lambda row: row.efficiency),
    ("peak_memory_bytes", "Peak memory of the rank that needs most.", lambda row: row.peak_memory),
    ("cpu_cores", "CPU cores that a rank uses, mean over the ranks.", lambda row: row.cpu_cores),
    ("loader_cores", "CPU cores that a rank's loaders use.", lambda row: row.loader_cores),
    (
        "network_bytes_per_second",
        "Of the group's interface, by all processes of the host.",
        lambda row: row.network_bytes_per_s,
    ),
    (
        "rdma_bytes_per_second",
        "Of all active ports for RDMA, by all processes of the host.",
        lambda row: row.rdma_bytes_per_s,
    ),
    ("gpu_busy_ratio", "Time in which some kernel ran ÷ time.", lambda row: row.gpu_busy),
    ("gpu_memory_used_bytes", "Of the fullest GPU.", lambda row: row.gpu_memory_used),
    ("mfu_ratio", "Model FLOPs utilisation.", lambda row: row.mfu),
    ("nvlink_bytes_per_second", "Of a GPU.", lambda row: row.nvlink_bytes_per_s),
    ("pcie_bytes_per_second", "Of a GPU.", lambda row: row.pcie_bytes_per_s),
    ("ratio", "This session divided by its baseline, of the worst metric.", lambda row: row.ratio),
    ("targets", "Absolute targets of the case.", lambda row: row.targets),
    ("targets_met", "Absolute targets that it meets.", lambda row: row.targets_met),
    ("red", "Whether the case failed.", lambda row: float(row.status is Status.RED)),
    (
        "measured_timestamp_seconds",
        "When the suite began.",
        lambda row: datetime.datetime.fromisoformat(row.date).timestamp(),
    ),
)


def prometheus_text(rows: Sequence[CaseRow]) -> str:
    """Return a gauge for each kind of figure, with a sample for each case that has it."""
    lines = []
    for name, help_text, value_of in _GAUGES:
        lines += [f"# HELP ddp_perf_{name} {help_text}", f"# TYPE ddp_perf_{name} gauge"]
        for row in rows:
            if (value := value_of(row)) is not None:
                lines.append(f"ddp_perf_{name}{{{_labels(row)}}} {value!r}")
    return "\n".join([*lines, *_origins(rows)]) + "\n"


def _origins(rows: Sequence[CaseRow]) -> list[str]:
    """Return the origin of each suite, as labels of a gauge of its own.

    As labels of every gauge they would begin a new series with each commit.
    """
    origins = {
        row.suite: {
            "suite": row.suite,
            "accelerator": row.accelerator,
            "commit": row.commit or "",
            "branch": row.branch or "",
            "host": row.host,
        }
        for row in rows
    }
    return [
        "# HELP ddp_perf_session_info What was measured, and where.",
        "# TYPE ddp_perf_session_info gauge",
        *(f"ddp_perf_session_info{{{_text_of(labels)}}} 1" for labels in origins.values()),
    ]


def _labels(row: CaseRow) -> str:
    labels = {
        "suite": row.suite,
        "case": row.case,
        "accelerator": row.accelerator,
        "unit": row.unit or "",
    }
    return _text_of(labels)


def _text_of(labels: Mapping[str, str]) -> str:
    return ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


# ``otava.csv`` and ``otava.yaml``: this session as Apache Otava imports a time series.
#
# Otava finds changes in many sessions: append the second line of each session's file to one file.


_ATTRIBUTES = ("commit", "branch", "host")


def otava_csv(rows: Sequence[CaseRow]) -> str:
    """Return a heading and one line: date and origin, and the typical step of each case in ms."""
    measured = _measured(rows)
    file = io.StringIO(newline="")
    writer = csv.writer(file)
    writer.writerow(["time", *_ATTRIBUTES, *measured])
    if rows:
        steps = [f"{row.step_s * 1e3:.6g}" for row in measured.values() if row.step_s]
        about = [getattr(rows[0], name) or "unknown" for name in _ATTRIBUTES]
        writer.writerow([rows[0].date, *about, *steps])
    return file.getvalue()


def otava_yaml(rows: Sequence[CaseRow]) -> str:
    """Return the configuration for ``otava analyze ddp-perf --config-file otava.yaml``."""
    metrics = {name: {"column": name, "direction": -1, "scale": 1.0} for name in _measured(rows)}
    test = {
        "type": "csv",
        "file": "otava.csv",
        "time_column": "time",
        "attributes": [*_ATTRIBUTES],
        "metrics": metrics,
    }
    return yaml.safe_dump({"tests": {"ddp-perf": test}}, sort_keys=False, allow_unicode=True)


def _measured(rows: Sequence[CaseRow]) -> dict[str, CaseRow]:
    """Return the rows by column name, without failed cases: Otava accepts no empty figure."""
    return {f"{row.suite}/{row.case}": row for row in rows if row.step_s is not None}


# ``techniques.csv``: what each technique gains, in SI units.


_FIELDS = (
    *("suite", "base", "ranks", "technique", "case", "pairs"),
    *("speedup", "speedup_low", "speedup_high"),
    *("communication_s", "overhead_reduction", "overhead_reduction_low", "overhead_reduction_high"),
    *("sent_bytes", "sent_ratio"),
    *("peak_memory", "memory_saved", "memory_saved_low", "memory_saved_high"),
)


def techniques_csv(tables: Sequence[GainTable]) -> str:
    """Return a row for each technique of each base as CSV (RFC 4180), with a heading."""
    file = io.StringIO(newline="")
    writer = csv.writer(file)
    writer.writerow(_FIELDS)
    for table in tables:
        for gain in table.gains:
            writer.writerow(_row(table, gain))
    return file.getvalue()


def _row(table: GainTable, gain: TechniqueGain) -> list[Any]:
    return [
        *(table.suite, table.base, table.ranks, gain.technique, gain.case_id, gain.pairs),
        *_ratio(gain.speedup),
        *(gain.communication_s, *(reduction(gain.communication) or (None,) * 3)),
        *(gain.sent_bytes, gain.sent_ratio),
        *(gain.peak_memory, *(reduction(gain.memory) or (None,) * 3)),
    ]


def _ratio(ratio: PairedRatio | None) -> tuple[float | None, float | None, float | None]:
    if ratio is None:
        return None, None, None
    return ratio.ratio, *(ratio.interval or (None, None))


# Bencher Metric Format: ``bencher run --adapter json --file bencher.json``.
#
# https://bencher.dev/docs/reference/bencher-metric-format/


_NS = 1e9  # Bencher's measure ``latency`` is in nanoseconds


def bencher_json(rows: Sequence[CaseRow]) -> str:
    """Return each measure of each case. The latency, in ns, has the range of its launches."""
    return json.dumps(
        {f"{row.suite}/{row.case}": _measures(row) for row in rows if row.step_s is not None},
        indent=1,
        allow_nan=False,
    )


def _measures(row: CaseRow) -> dict[str, dict[str, float]]:
    plain = {
        "throughput": row.throughput,
        "scaling-efficiency": row.efficiency,
        "peak-memory": row.peak_memory,
    }
    measures = {name: {"value": value} for name, value in plain.items() if value is not None}
    assert row.step_s is not None  # the caller checks it
    latency = {"value": row.step_s, "lower_value": row.step_low_s, "upper_value": row.step_high_s}
    measured = {name: seconds * _NS for name, seconds in latency.items() if seconds is not None}
    return {"latency": measured, **measures}


# ``comprehensive_summary.csv``: every field of every row.


# A spreadsheet runs a cell that begins with one of these (OWASP, "CSV Injection").
_RUN = ("=", "+", "-", "@", "\t", "\r", "\n")


def summary_csv(rows: Sequence[CaseRow]) -> str:
    """Return all rows as CSV (RFC 4180), with a heading.

    An absent figure is empty. A text that a spreadsheet would run has an apostrophe before it.
    """
    file = io.StringIO(newline="")
    writer = csv.DictWriter(file, CaseRow.__struct_encode_fields__)
    writer.writeheader()
    for row in rows:
        writer.writerow({name: _cell(cell) for name, cell in msgspec.to_builtins(row).items()})
    return file.getvalue()


def _cell(value: Any) -> Any:
    return f"'{value}" if isinstance(value, str) and value.startswith(_RUN) else value


# JSON for github-action-benchmark, its tool ``customSmallerIsBetter``.


def action_benchmark_json(rows: Sequence[CaseRow]) -> str:
    """Return the typical step of every measured case, in ms, with the range of its launches."""
    entries = [
        {
            "name": f"{row.suite}/{row.case}",
            "unit": "ms/step",
            "value": row.step_s * 1e3,
            "range": f"± {(row.step_high_s - row.step_low_s) * 500:.3g}",
            "extra": f"{row.verdict}: {row.reason}\n{_origin(row)}",
        }
        for row in rows
        if row.step_s is not None and row.step_low_s is not None and row.step_high_s is not None
    ]
    return json.dumps(entries, indent=1, allow_nan=False) + "\n"


def _origin(row: CaseRow) -> str:
    known = (("commit", row.commit), ("branch", row.branch), ("host", row.host))
    return ", ".join(f"{name} {value}" for name, value in known if value)
