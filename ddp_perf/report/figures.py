"""The figures that tables and plots share: utilisation, the terms of a step, scaling curves."""

from __future__ import annotations

import collections
from collections.abc import Sequence

import msgspec

from ddp_perf.core.case import Case, curve_label, layout_curves, scaling_key
from ddp_perf.core.decomposition import TERMS, Decomposition
from ddp_perf.core.measurement import LaunchSummary
from ddp_perf.render.model import Column, Table
from ddp_perf.render.units import short_number
from ddp_perf.report.columns import FigureColumn, figure_table, gigabytes, percent_text
from ddp_perf.report.rows import CaseRow
from ddp_perf.session.result import SuiteResult
from ddp_perf.stats.step_decomposition import typical


def utilisation_table(rows: Sequence[CaseRow]) -> Table:
    """Return a row for each case, with the columns that have a figure in any row."""
    first = Column(title="utilisation", words=True)
    return figure_table("utilisation of each case", UTILISATION, rows, first=first)


UTILISATION = (
    FigureColumn(
        "cpu_cores",
        "CPU cores",
        "CPU time of a rank ÷ time, mean over the ranks: 1 is one core all the time",
        "{:.2f}".format,
    ),
    FigureColumn(
        "system_cores",
        "in the kernel",
        "the part of the CPU cores that the operating system used for the rank",
        "{:.2f}".format,
    ),
    FigureColumn(
        "loader_cores",
        "loader cores",
        "CPU time of a rank's loader workers ÷ time: loading and preprocessing together",
        "{:.2f}".format,
    ),
    FigureColumn(
        "cores_share",
        "share of cores",
        "CPU time of all ranks and loaders ÷ that of all cores that they may use",
        percent_text,
    ),
    FigureColumn(
        "network_bytes_per_s",
        "network MB/s",
        "bytes of the group's network interface, by all processes of the host",
        lambda value: short_number(value / 1e6),
    ),
    FigureColumn(
        "network_share",
        "share of network",
        "network bytes ÷ the speed of the interface's link",
        percent_text,
    ),
    FigureColumn(
        "rdma_bytes_per_s",
        "RDMA GB/s",
        "bytes of all active ports of InfiniBand or RoCE, by all processes of the first host",
        gigabytes,
    ),
    FigureColumn(
        "rdma_share",
        "share of RDMA",
        "RDMA bytes ÷ the rate of all these ports in one direction",
        percent_text,
    ),
    FigureColumn(
        "rdma_waits_per_s",
        "RDMA waits M/s",
        "ticks in which a port had data and sent none (port_xmit_wait), in millions a second",
        lambda value: short_number(value / 1e6),
    ),
    FigureColumn(
        "gpu_busy",
        "GPU busy",
        "share of the time in which some kernel ran, mean over the GPUs",
        percent_text,
    ),
    FigureColumn(
        "mfu",
        "MFU",
        "operations of a step ÷ what the GPU's dense peak allows in its time",
        percent_text,
    ),
    FigureColumn("sm_clock_mhz", "SM clock MHz", "mean over time and GPUs", "{:,.0f}".format),
    FigureColumn(
        "gpu_memory_used",
        "GPU memory GB",
        "in use after the steps, by all processes, as nvidia-smi counts it; of the fullest GPU",
        gigabytes,
    ),
    FigureColumn(
        "gpu_memory_share",
        "of its memory",
        "GPU memory in use ÷ the memory of the smallest GPU",
        percent_text,
    ),
    FigureColumn(
        "gpu_memory_busy",
        "memory busy",
        "share of the time in which the GPU's memory was read or written",
        percent_text,
    ),
    FigureColumn("pcie_bytes_per_s", "PCIe GB/s", "of a GPU, in the busier direction", gigabytes),
    FigureColumn(
        "nvlink_bytes_per_s",
        "NVLink GB/s",
        "of a GPU, over all its links, in the busier direction",
        gigabytes,
    ),
    FigureColumn(
        "nvlink_share",
        "share of NVLink",
        "NVLink bytes ÷ the peak of the GPU's links in one direction",
        percent_text,
    ),
)

# The terms of a step as all reports show them: one name for each, in the order of a step.


REST = "rest"
# In words that need no other page. docs/explain.md states how each is measured.
MEANINGS = {
    "data": "the wait for the batch",
    "forward": "the forward pass, with the loss",
    "backward": "the backward pass, as long as it takes without communication beside it",
    "interference": "how much longer the backward takes because communication runs beside it",
    "optimizer": "the optimizer, with clearing the gradients",
    "idle": "the rank had no core, or slept (CPU tier only)",
    "imbalance": "how much longer the slowest rank works than a typical one",
    "exposed": "the wait for communication that nothing hides",
    REST: "the timed step beyond all terms, which are measured on later steps",
}
SHOWN = (*TERMS, REST)
HIDDEN = "the share of the communication that costs the step nothing"
_LONGEST = 1.1  # timed steps: terms of longer ones are of other steps, such as on a busier machine
_OF_COMMUNICATION = ("interference", "exposed")


def shown_step(rows: Sequence[LaunchSummary], step_s: float) -> Decomposition | None:
    """Return the typical step of the launches whose probed steps are like a timed one.

    The terms are measured on later steps than those that are timed. Those of steps that took longer
    by more than a tenth do not describe the timed ones. None: no launch has such terms.
    """
    probed = [row.decomposition for row in rows if row.decomposition is not None]
    return typical([one for one in probed if one.step_s <= _LONGEST * step_s])


def term_values(step: Decomposition, step_s: float) -> dict[str, float | None]:
    """Return the seconds of each name in SHOWN for a timed step. None: the term was not seen.

    There is no rest if the terms add up to more than the timed step. Interference is never below 0:
    a backward that took longer without communication than with it shows none, and is as long as the
    one with it.
    """
    rest = step_s - step.explained_s
    values: dict[str, float | None] = {**step.terms, REST: rest if rest >= 0 else None}
    shorter = min(0.0, step.terms["interference"])
    values["interference"] = step.terms["interference"] - shorter
    values["backward"] = step.terms["backward"] + shorter
    if not step.sees_communication:
        values |= dict.fromkeys(_OF_COMMUNICATION)
    return values


def hidden_share(step: Decomposition) -> float | None:
    """Return the share of the communication that costs the step nothing.

    It is 0, and never less, if communication costs more beside computation than alone: the terms
    show what it costs. None: unknown, or there is no communication.
    """
    return None if step.hidden_share is None else max(0.0, step.hidden_share)


# The scaling curves of a suite as plots show them: rows by number of ranks, from one rank on.


class PlotSeries(msgspec.Struct, frozen=True, kw_only=True):
    """The rows of one scaling curve, with its single-rank baseline run."""

    name: str
    rows: tuple[CaseRow, ...]  # sorted by ranks; each was measured
    tolerance: float  # of the step time, a fraction


def series_of(result: SuiteResult, rows: Sequence[CaseRow]) -> list[PlotSeries]:
    """Return the scaling curves whose single-rank baseline run was measured."""
    by_id = {row.case: row for row in rows if row.throughput is not None}
    grouped: dict[tuple[str, str], list[Case]] = collections.defaultdict(list)
    for case_id in by_id:
        case = result.measurements[case_id].case
        if case.single is not None and case.single in by_id:
            grouped[case.single, scaling_key(case.work())].append(case)
    return [
        _curve([by_id[single], *(by_id[alike[place].id] for place in places)], alike[places[0]])
        for (single, _), alike in grouped.items()
        for places in layout_curves([case.work() for case in alike]).values()
    ]


def _curve(rows: Sequence[CaseRow], case: Case) -> PlotSeries:
    return PlotSeries(
        name=curve_label(case.id, case.world_size),
        rows=tuple(sorted(rows, key=lambda row: row.ranks)),
        tolerance=case.tolerances.step_time,
    )
