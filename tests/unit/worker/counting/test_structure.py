"""A step's collectives: their kinds from the dispatcher, their order from the recorder."""

from __future__ import annotations

import torch
from torch import nn

from ddp_perf.core.launch import Collective
from ddp_perf.worker.counting import structure
from ddp_perf.worker.counting.structure import Dispatched, dispatched_collective, in_order
from ddp_perf.worker.rank_context import Examination
from ddp_perf.worker.steps.protocol import follow_plan

FOUR_FLOATS = Collective(kind="reduce_scatter", dtype="float32", bytes=16)
TWO_FLOATS = Collective(kind="all_gather", dtype="float32", bytes=16)


def recorded(name, *shape, dtype="Float"):
    return {"profiling_name": f"gloo:{name}", "input_sizes": [shape], "input_dtypes": [dtype]}


def test_in_order_places_undispatched_collectives_where_they_were_issued():
    """A hook issues such collectives from a thread of gloo."""
    entries = [recorded("all_reduce", 8), recorded("all_reduce", 4), recorded("all_reduce", 2)]
    dispatched = [Dispatched(FOUR_FLOATS, {16, 8})]

    assert list(in_order(dispatched, entries)) == [
        Collective(kind="all_reduce", dtype="float32", bytes=32),
        FOUR_FLOATS,
        Collective(kind="all_reduce", dtype="float32", bytes=8),
    ]


def test_in_order_keeps_the_kind_and_the_largest_tensor_of_a_dispatched_collective():
    """Over gloo the recorder calls a reduce-scatter an all-reduce, and has the inputs only."""
    entries = [recorded("all_reduce", 4), recorded("_all_gather_base", 2)]
    dispatched = [Dispatched(FOUR_FLOATS, {16, 8}), Dispatched(TWO_FLOATS, {16, 8})]

    assert list(in_order(dispatched, entries)) == [FOUR_FLOATS, TWO_FLOATS]


def test_in_order_returns_the_dispatched_collectives_without_a_recorder():
    dispatched = [Dispatched(FOUR_FLOATS, {16}), Dispatched(TWO_FLOATS, {16})]

    assert list(in_order(dispatched, [])) == [FOUR_FLOATS, TWO_FLOATS]


def test_in_order_gives_the_variants_of_a_collective_one_name():
    (collective,) = in_order([], [recorded("_all_gather_base", 2, dtype="BFloat16")])

    assert collective == Collective(kind="all_gather", dtype="bfloat16", bytes=4)


def test_count_structure_reads_the_recorder_of_a_gpu_after_its_collectives_are_done(monkeypatch):
    done = []
    for owner, name, stand_in in (
        (torch.cuda, "is_initialized", lambda: True),
        (torch.cuda, "synchronize", lambda: done.append("synchronise")),
        (structure, "flight_recorder_entries", lambda: done.append("read") or []),
    ):
        monkeypatch.setattr(owner, name, stand_in)

    follow_plan(
        structure.count_structure(nn.Linear(1, 1), Examination()), lambda: done.append("step")
    )

    assert done == ["synchronise", "read", "step", "synchronise", "read"]


def test_a_functional_collective_is_dispatched_like_the_others_without_its_wait():
    """It returns what the others write to an argument. DTensor uses it."""
    functional = torch.ops._c10d_functional
    own, gathered = torch.ones(2), torch.ones(4)

    dispatched = dispatched_collective(
        functional.all_gather_into_tensor.default, (own, 2, "0"), gathered
    )

    assert dispatched == Dispatched(TWO_FLOATS, {8, 16})
    assert dispatched_collective(functional.wait_tensor.default, (own,), own) is None
    assert dispatched_collective(torch.ops.aten.add.Tensor, (own, own), own) is None
