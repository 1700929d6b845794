"""The split of the time, on traces that can be added up by hand."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ddp_perf.traces.analysis import split_of
from tests.unit.traces.kineto import all_reduce, copy, gloo, kernel, operator

US = 1e-6


def test_parts_of_a_window_are_as_added_up_by_hand(timeline):
    #  0   10   20   30   40   50   60
    #  gemm─────     gemm           |      computation 0–15, 25–35
    #       nccl─────────────       |      communication 10–40: 5 + 10 hidden of 30
    #            copy─              |      memory 18–22, under the communication
    #                           copy       memory 50–60
    split = split_of(
        timeline(
            kernel("gemm", 0, 15),
            kernel("gemm", 25, 10),
            all_reduce(10, 30),
            copy(18, 4),
            copy(50, 10),
        )
    )

    assert split.window_s == pytest.approx(60 * US)
    assert split.computation_s == pytest.approx(25 * US)
    assert split.communication_s == pytest.approx(30 * US)
    assert split.exposed_communication_s == pytest.approx(15 * US)
    assert split.memory_s == pytest.approx(14 * US)
    assert split.exposed_memory_s == pytest.approx(10 * US)
    assert split.idle_s == pytest.approx(10 * US)
    assert split.overlap == pytest.approx(0.5)


def test_overlapping_streams_count_once(timeline):
    split = split_of(
        timeline(
            kernel("gemm", 0, 10),
            kernel("gemm", 2, 4, stream=8),  # within the first
            kernel("gemm", 5, 10, stream=9),
            all_reduce(0, 20),
            all_reduce(10, 20, stream=21),
        )
    )

    assert split.computation_s == pytest.approx(15 * US)
    assert split.communication_s == pytest.approx(30 * US)
    assert split.overlap == pytest.approx(0.5)


def test_overlap_is_none_without_communication(timeline):
    split = split_of(timeline(kernel("gemm", 0, 10)))

    assert split.overlap is None
    assert split.exposed_communication_s == 0


def test_events_without_length_are_no_work(timeline):
    split = split_of(timeline(kernel("gemm", 5, 0), all_reduce(5, 0)))

    assert (split.window_s, split.idle_s, split.overlap) == (0, 0, None)


def test_gpu_trace_leaves_out_host_operators(timeline):
    split = split_of(timeline(kernel("gemm", 0, 10), operator("aten::mm", 100, 900)))

    assert split.window_s == pytest.approx(10 * US)


def test_operators_compute_and_gloo_communicates_without_a_gpu(timeline):
    split = split_of(
        timeline(
            operator("autograd::engine::evaluate_function: AddmmBackward0", 0, 100),
            operator("aten::linear", 0, 40),
            operator("aten::addmm", 5, 30),  # within the other
            operator("c10d::allreduce_", 40, 5),
            gloo(30, 40),
            operator("aten::copy_", 60, 5, tid=200),  # gloo's own
            operator("aten::mm", 80, 20),
        )
    )

    assert split.window_s == pytest.approx(100 * US)
    assert split.computation_s == pytest.approx(60 * US)
    assert split.communication_s == pytest.approx(40 * US)
    assert split.overlap == pytest.approx(0.25)
    assert split.idle_s == pytest.approx(10 * US)


def test_gloo_beside_a_gpu_is_communication(timeline):
    split = split_of(timeline(kernel("gemm", 0, 10), gloo(10, 30), kernel("gemm", 30, 20)))

    assert split.overlap == pytest.approx(1 / 3)


TIMES = st.tuples(st.integers(0, 500), st.integers(0, 60), st.integers(1, 4))
MAKERS = st.sampled_from([lambda s, d, n: kernel("gemm", s, d, stream=n), all_reduce, copy])


@settings(max_examples=50)
@given(st.lists(st.tuples(MAKERS, TIMES), min_size=1, max_size=30), st.integers(0, 99))
def test_parts_add_up_in_any_order_of_events(timeline, drawn, seed):
    events = [
        make(start, length, stream=stream)
        if make in (all_reduce, copy)
        else make(start, length, stream)
        for make, (start, length, stream) in drawn
    ]
    split = split_of(timeline(*events))

    parts = split.computation_s + split.exposed_communication_s + split.exposed_memory_s
    assert parts + split.idle_s == pytest.approx(split.window_s)
    assert split.overlap is None or 0 <= split.overlap <= 1
    random.Random(seed).shuffle(events)
    assert split_of(timeline(*events)) == split
