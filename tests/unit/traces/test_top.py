"""The longest kernels and collectives over all ranks."""

from __future__ import annotations

import pytest

from ddp_perf.traces.analysis import top_collectives, top_kernels
from tests.unit.traces.kineto import all_reduce, gloo, kernel, operator

US = 1e-6


def test_kernels_of_all_ranks_are_added_up(timeline):
    one = timeline(kernel("gemm", 0, 10), kernel("relu", 10, 4), all_reduce(20, 90))
    other = timeline(kernel("gemm", 0, 12), kernel("relu", 20, 5), kernel("relu", 25, 5))

    gemm, relu = top_kernels([one, other])

    assert (gemm.name, gemm.calls, gemm.total_s) == ("gemm", 2, pytest.approx(22 * US))
    assert (relu.name, relu.calls, relu.total_s) == ("relu", 3, pytest.approx(14 * US))


def test_operator_time_excludes_the_operators_it_calls(timeline):
    found = top_kernels(
        [
            timeline(
                operator("aten::linear", 0, 100),
                operator("aten::addmm", 10, 80),
                operator("aten::copy_", 20, 5),
                operator("aten::mm", 0, 30, tid=101),  # of another thread
                gloo(0, 1),
            )
        ]
    )

    own = {kernel.name: kernel.total_s for kernel in found}
    assert own == {
        "aten::addmm": pytest.approx(75 * US),
        "aten::mm": pytest.approx(30 * US),
        "aten::linear": pytest.approx(20 * US),
        "aten::copy_": pytest.approx(5 * US),
    }


def test_collectives_are_grouped_by_their_message(timeline):
    size = {"In msg nelems": 100, "dtype": "Float"}
    small = {**size, "In msg nelems": 1}
    found = top_collectives(
        [
            timeline(
                kernel("gemm", 0, 15),
                all_reduce(10, 10, **size),
                all_reduce(30, 10, **size),
                all_reduce(50, 2, **small),
            )
        ]
    )

    assert [(one.message.bytes, one.calls) for one in found] == [(400, 2), (4, 1)]
    assert found[0].total_s == pytest.approx(20 * US)
    assert found[0].exposed_s == pytest.approx(15 * US)
