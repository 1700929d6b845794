"""``ddp_perf.prom``: for node_exporter's textfile collector.

https://prometheus.io/docs/instrumenting/exposition_formats/
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping, Sequence

from ddp_perf.report.rows import CaseRow
from ddp_perf.report.verdicts import Status

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
