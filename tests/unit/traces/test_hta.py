"""The split with HolisticTraceAnalysis 0.5.0's selection of events equals HTA's own figures.

HTA computed the figures of the real traces; benchmarks/traces.py runs it again.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from ddp_perf.traces.analysis import analyse_traces, hta_split_of, split_of
from tests.unit.traces.kineto import all_reduce, event, gloo, kernel, launch, operator, step

RECORDED = Path(__file__).parent / "recorded"
US = 1e-6


@pytest.mark.parametrize(
    ("name", "computation_us", "idle_us", "other_us", "overlap", "clean_overlap"),
    [
        ("a100_ws2", 75_169, 338_781, 21_636, 0.1431, 0.156),
        ("v100_sxm2_ws2", 429_216, 46_910, 152_245, 0.688, 0.708),
    ],
)
def test_figures_of_real_traces_equal_those_of_hta(
    name, computation_us, idle_us, other_us, overlap, clean_overlap
):
    (rank,) = analyse_traces([RECORDED / f"{name}.json.gz"]).ranks

    assert rank.hta.computation_s == pytest.approx(computation_us * US)
    assert rank.hta.idle_s == pytest.approx(idle_us * US)
    assert rank.hta.other_s == pytest.approx(other_us * US)
    assert rank.hta.overlap == pytest.approx(overlap, abs=5e-5)
    assert rank.split.overlap == pytest.approx(clean_overlap, abs=5e-4)


def test_hta_selection_leaves_out_the_last_step(timeline):
    events = [
        step(1, 0, 50),
        launch(5, 1),
        kernel("gemm", 10, 20, correlation=1),
        step(2, 50, 50),
        launch(55, 2),
        kernel("gemm", 60, 30, correlation=2),
    ]
    split = hta_split_of(timeline(*events))

    assert split.computation_s == pytest.approx(20 * US)
    assert split.idle_s == 0


def test_hta_selection_keeps_a_single_step_and_a_trace_without_steps(timeline):
    events = [launch(5, 1), kernel("gemm", 10, 20, correlation=1), kernel("gemm", 40, 10)]

    for more in ([], [step(1, 0, 50)]):
        split = hta_split_of(timeline(*more, *events))
        assert split.computation_s == pytest.approx(30 * US)


def test_hta_rounds_starts_up_and_ends_down(timeline):
    split = hta_split_of(timeline(kernel("gemm", 10.2, 5.0), all_reduce(20.9, 10.0)))

    assert split.computation_s == pytest.approx(4 * US)  # 11 to 15
    assert split.other_s == pytest.approx(9 * US)  # 21 to 30


def test_hta_counts_a_wait_as_work_that_does_not_compute(timeline):
    wait = event("cuda_sync", "Stream Sync", 10, 10, 7, stream=7)
    split = hta_split_of(timeline(kernel("gemm", 0, 10), wait))

    assert split.other_s == pytest.approx(10 * US)


def test_hta_counts_an_operator_with_a_stream_as_a_kernel(timeline):
    triton = event("cpu_op", "triton_poi_fused_0", 5, 90, 100, stream=0)
    split = hta_split_of(timeline(triton, kernel("triton_poi_fused_0", 97, 3)))

    assert split.computation_s == pytest.approx(93 * US)
    assert split_of(timeline(triton, kernel("gemm", 97, 3))).window_s == pytest.approx(3 * US)


def test_hta_split_needs_a_gpu(timeline):
    assert hta_split_of(timeline(operator("aten::mm", 0, 10), gloo(0, 5))) is None
