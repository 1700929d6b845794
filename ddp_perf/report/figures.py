"""The utilisation of a suite: columns that the page and the table of text share."""

from __future__ import annotations

from collections.abc import Sequence

from ddp_perf.render.tables import NARROWEST, plain_table, rendered, short_names
from ddp_perf.render.units import short_number
from ddp_perf.report.columns import Column, percent_text
from ddp_perf.report.rows import CaseRow

_COLUMNS_OF_TABLE = 7  # in 80 columns of text, beside the name of the case


def utilisation_columns(rows: Sequence[CaseRow]) -> list[Column]:
    """Return the columns that have a figure in any row."""
    return [column for column in _COLUMNS if any(column.value(row) is not None for row in rows)]


def utilisation_table(rows: Sequence[CaseRow], width: int) -> str | None:
    """Return a row for each case of a suite; None if no case has a reading.

    As many tables follow one another as the columns need.
    """
    columns = utilisation_columns(rows)
    names = short_names(row.case for row in rows)
    width = max(width, NARROWEST)
    lines: list[str] = []
    for first in range(0, len(columns), _COLUMNS_OF_TABLE):
        table = plain_table()
        table.add_column("utilisation", overflow="fold")
        chosen = columns[first : first + _COLUMNS_OF_TABLE]
        for column in chosen:
            table.add_column("\n".join(column.heading.rsplit(" ", 1)), justify="right")
        for row in rows:
            table.add_row(names[row.case], *(column.text(row) for column in chosen))
        lines += rendered(table, width)
    return "\n".join(lines) or None


def _gigabytes(value: float) -> str:
    return f"{value / 1e9:.3g}"


_COLUMNS = (
    Column(
        "CPU cores",
        "CPU time of a rank ÷ time, mean over the ranks: 1 is one core all the time",
        lambda row: row.cpu_cores,
        "{:.2f}".format,
    ),
    Column(
        "in the kernel",
        "the part of the CPU cores that the operating system used for the rank",
        lambda row: row.system_cores,
        "{:.2f}".format,
    ),
    Column(
        "loader cores",
        "CPU time of a rank's loader workers ÷ time: loading and preprocessing together",
        lambda row: row.loader_cores,
        "{:.2f}".format,
    ),
    Column(
        "share of cores",
        "CPU time of all ranks and loaders ÷ that of all cores that they may use",
        lambda row: row.cores_share,
        percent_text,
    ),
    Column(
        "network MB/s",
        "bytes of the group's network interface, by all processes of the host",
        lambda row: row.network_bytes_per_s,
        lambda value: short_number(value / 1e6),
    ),
    Column(
        "share of network",
        "network bytes ÷ the speed of the interface's link",
        lambda row: row.network_share,
        percent_text,
    ),
    Column(
        "RDMA GB/s",
        "bytes of all active ports of InfiniBand or RoCE, by all processes of the first host",
        lambda row: row.rdma_bytes_per_s,
        _gigabytes,
    ),
    Column(
        "share of RDMA",
        "RDMA bytes ÷ the rate of all these ports in one direction",
        lambda row: row.rdma_share,
        percent_text,
    ),
    Column(
        "RDMA waits M/s",
        "ticks in which a port had data and sent none (port_xmit_wait), in millions a second",
        lambda row: row.rdma_waits_per_s,
        lambda value: short_number(value / 1e6),
    ),
    Column(
        "GPU busy",
        "share of the time in which some kernel ran, mean over the GPUs",
        lambda row: row.gpu_busy,
        percent_text,
    ),
    Column(
        "MFU",
        "operations of a step ÷ what the GPU's dense peak allows in its time",
        lambda row: row.mfu,
        percent_text,
    ),
    Column(
        "SM clock MHz", "mean over time and GPUs", lambda row: row.sm_clock_mhz, "{:,.0f}".format
    ),
    Column(
        "GPU memory GB",
        "in use after the steps, by all processes, as nvidia-smi counts it; of the fullest GPU",
        lambda row: row.gpu_memory_used,
        _gigabytes,
    ),
    Column(
        "of its memory",
        "GPU memory in use ÷ the memory of the smallest GPU",
        lambda row: row.gpu_memory_share,
        percent_text,
    ),
    Column(
        "memory busy",
        "share of the time in which the GPU's memory was read or written",
        lambda row: row.gpu_memory_busy,
        percent_text,
    ),
    Column(
        "PCIe GB/s",
        "of a GPU, in the busier direction",
        lambda row: row.pcie_bytes_per_s,
        _gigabytes,
    ),
    Column(
        "NVLink GB/s",
        "of a GPU, over all its links, in the busier direction",
        lambda row: row.nvlink_bytes_per_s,
        _gigabytes,
    ),
    Column(
        "share of NVLink",
        "NVLink bytes ÷ the peak of the GPU's links in one direction",
        lambda row: row.nvlink_share,
        percent_text,
    ),
)
