"""The utilisation in every report: the page, the tables, the block of a case, and the files."""

from __future__ import annotations

import csv
import io

import pytest

from ddp_perf.core.launch import GpuTraffic, NetworkUse, RdmaUse
from ddp_perf.render.terminal import table_lines
from ddp_perf.report.case_text import rank_utilisation_lines, utilisation_lines
from ddp_perf.report.figures import utilisation_table
from ddp_perf.report.rows import report_summary
from ddp_perf.report.tables import summary_csv
from ddp_perf.stats.summary import utilisation_figures
from tests.builders import (
    make_cases,
    make_environment,
    make_measurement,
    make_result,
    make_utilisation,
)

ONE, TWO = make_cases()
NETWORK = NetworkUse(interface="lo", sent=8 * 10**8, received=8 * 10**8)
ON_CPU = make_utilisation(loaders_cpu_s=0.5, network=NETWORK)
ON_GPU = make_utilisation(
    gpu={
        "busy": 0.8,
        "memory_busy": 0.3,
        "sm_clock_mhz": 1590.0,
        "memory_used": 4_200_000_000,
        "traffic": GpuTraffic(
            pcie_sent=10**9, pcie_received=0, nvlink_sent=36 * 10**10, nvlink_received=0
        ),
    }
)


def result_of(used, **environment):
    measurements = [make_measurement(case, [0.01], utilisation=used) for case in (ONE, TWO)]
    return make_result(measurements, environment=make_environment(**environment))


def on_gpus():
    return result_of(
        ON_GPU, accelerator_key="v100-sxm2-16gb", gpu_memory=6 * 10**9, interconnect="NV6"
    )


def rows_of(result):
    return report_summary([result], complete=True).rows


def lines_of(result):
    return utilisation_lines(utilisation_figures(result.measurements[TWO.id].launches))


RDMA = RdmaUse(ports="2 x InfiniBand", sent=94 * 10**9, received=0, waited=10**7, speed=50e9)
CORES = "CPU              : 0.50 cores a rank, 0.10 of them in the kernel"


@pytest.mark.parametrize(
    ("used", "lines", "columns"),
    [
        (None, [], set()),
        (make_utilisation(), [CORES], {"CPU cores"}),
        (
            ON_CPU,
            [
                f"{CORES}; loaders 0.25 cores a rank",
                "Network          : 400 MB/s over lo (whole host)",
            ],
            {"CPU cores", "loader cores", "network MB/s"},
        ),
        (
            ON_GPU,
            [
                CORES,
                "GPU              : busy 80%, SM clock 1,590 MHz, 4.2 GB in use",
                "GPU links        : PCIe 0.5 GB/s, NVLink 180 GB/s (of a GPU, the busier"
                " direction)",
            ],
            {"CPU cores", "GPU busy", "SM clock MHz", "NVLink GB/s"},
        ),
        (
            make_utilisation(rdma=RDMA),
            [
                CORES,
                "RDMA             : 47 GB/s over 2 x InfiniBand, 94% of their rate (whole host)",
            ],
            {"CPU cores", "RDMA GB/s", "share of RDMA", "RDMA waits M/s"},
        ),
    ],
    ids=["nothing", "cores", "CPUs", "GPUs", "RDMA"],
)
def test_the_block_of_a_case_and_the_table_have_only_what_was_read(used, lines, columns):
    result = result_of(used)
    titles = {column.title for column in utilisation_table(rows_of(result)).columns}
    others = {"network MB/s", "RDMA GB/s", "GPU busy", "NVLink GB/s", "CPU cores"} - columns

    assert lines_of(result) == lines
    assert columns <= titles
    assert not others & titles
    assert max(map(len, table_lines(utilisation_table(rows_of(result)), 80))) <= 80


def test_each_rank_has_the_columns_of_document_002():
    """Memory used, utilisation and data samples of each GPU."""
    assert rank_utilisation_lines(on_gpus(), TWO.id) == [
        f"rank {rank} used 0.50 cores, GPU busy 80%, 4.2 GB in use, 640 samples in the timed steps"
        for rank in (0, 1)
    ]
    assert rank_utilisation_lines(result_of(None), TWO.id) == []


def test_rows_have_shares_of_the_gpus_memory_and_of_the_peak_of_its_links():
    row = rows_of(on_gpus())[1]

    assert row.gpu_memory_share == pytest.approx(0.7)
    assert row.nvlink_share == pytest.approx(180 / 150)  # of one direction, by its data sheet
    assert rows_of(result_of(ON_GPU))[1].nvlink_share is None  # no NVLink


def test_the_csv_file_has_the_figures():
    rows = rows_of(on_gpus())
    written = list(csv.DictReader(io.StringIO(summary_csv(rows))))[1]

    assert float(written["gpu_busy"]) == pytest.approx(0.8)
    assert float(written["sm_clock_mhz"]) == 1590
    assert float(written["cpu_cores"]) == 0.5
    assert written["network_bytes_per_s"] == ""
