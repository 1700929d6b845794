"""Counts of a GPU's work are exact: equal in every step of a real trace."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from ddp_perf.traces.analysis import kernel_counts
from ddp_perf.traces.chrome import read_chrome_trace
from ddp_perf.traces.timeline import timeline_of
from tests.unit.traces.kineto import all_reduce, copy, fill, kernel, launch, operator, step, wait

RECORDED = Path(__file__).parent / "recorded"


def counts_of(timeline):
    found = kernel_counts(timeline)
    return {(one.kind, one.name.split("(")[0].strip()): one.calls for one in found.counts}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "a100_ws2",
            {"kernel": 893, "collective": 7, "copy": 320, "fill": 38, "synchronisation": 8},
        ),
        (
            "v100_sxm2_ws2",
            {"kernel": 1545, "collective": 10, "copy": 803, "fill": 145, "synchronisation": 10},
        ),
    ],
)
def test_every_step_of_a_real_trace_has_the_same_counts(name, expected):
    found = kernel_counts(timeline_of(read_chrome_trace(RECORDED / f"{name}.json.gz")))

    assert len(found.steps) >= 3
    assert [one for one in found.counts if len(set(one.calls)) > 1] == []
    totals = Counter()
    for one in found.counts:
        totals[one.kind] += one.calls[0]
    assert totals == expected


def test_each_kind_is_counted_in_the_step_that_launched_it(timeline):
    found = counts_of(
        timeline(
            step(1, 0, 100),
            step(2, 100, 100),
            *(launch(start, number) for number, start in enumerate((10, 20, 110, 120, 130))),
            kernel("gemm", 30, 10, correlation=0),
            kernel("gemm", 150, 10, correlation=1),  # runs in the second step
            all_reduce(160, 10, correlation=2),
            fill(170, 1, correlation=3),
            kernel("gemm", 180, 10, correlation=4),
        )
    )

    assert found == {
        ("kernel", "gemm"): (2, 1),
        ("collective", "ncclDevKernel_AllReduce_Sum_f32_RING_LL"): (0, 1),
        ("fill", "Memset"): (0, 1),
    }


def test_work_from_before_the_trace_belongs_to_no_step(timeline):
    late = kernel("gemm", 5, 10)
    found = counts_of(
        timeline(step(1, 0, 100), late, launch(10, 1), kernel("gemm", 20, 5, correlation=1))
    )

    assert found == {("kernel", "gemm"): (1,)}


def test_a_trace_without_launches_counts_by_start(timeline):
    found = counts_of(timeline(step(1, 0, 10), step(2, 10, 10), kernel("gemm", 12, 5)))

    assert found == {("kernel", "gemm"): (0, 1)}


@pytest.mark.parametrize(
    ("name", "waits"),
    [
        ("cudaStreamSynchronize", True),
        ("cudaDeviceSynchronize", True),
        ("cudaEventSynchronize", True),
        ("cudaMemcpy", True),
        ("hipStreamSynchronize", True),
        ("cuCtxSynchronize", True),
        ("cudaMemcpyAsync", False),
        ("cudaEventQuery", False),
        ("cudaStreamWaitEvent", False),  # a stream waits, not the host
    ],
)
def test_a_call_in_which_the_host_waits_is_counted(timeline, name, waits):
    found = counts_of(timeline(step(1, 0, 10), kernel("gemm", 0, 1), wait(5, name=name)))

    assert found.get(("synchronisation", name)) == ((1,) if waits else None)


def test_a_wait_after_the_last_step_is_the_profilers(timeline):
    found = counts_of(timeline(step(1, 0, 10), kernel("gemm", 0, 1), wait(11)))

    assert found == {("kernel", "gemm"): (1,)}


def test_without_annotated_steps_the_whole_trace_is_counted(timeline):
    found = kernel_counts(timeline(copy(0, 1), copy(2, 1), wait(3)))

    assert found.steps == ()
    assert [one.calls for one in found.counts] == [(2,), (1,)]


def test_without_a_gpu_nothing_is_counted(timeline):
    assert kernel_counts(timeline(step(1, 0, 10), operator("aten::mm", 1, 2))) is None
