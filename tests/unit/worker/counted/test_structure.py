"""Two witnesses of a step: what was dispatched knows the kinds, the recorder the order."""

from __future__ import annotations

import torch
from torch import nn

from ddp_perf.core.launch import Collective
from ddp_perf.worker.counted import structure
from ddp_perf.worker.counted.structure import Seen, in_order

FOUR_FLOATS = Collective(kind="reduce_scatter", dtype="float32", bytes=16)
TWO_FLOATS = Collective(kind="all_gather", dtype="float32", bytes=16)


def recorded(name, *shape, dtype="Float"):
    return {"profiling_name": f"gloo:{name}", "input_sizes": [shape], "input_dtypes": [dtype]}


def test_what_nobody_saw_stands_where_it_was_issued():
    """A hook's collectives, from a thread of gloo's."""
    entries = [recorded("all_reduce", 8), recorded("all_reduce", 4), recorded("all_reduce", 2)]
    seen = [Seen(FOUR_FLOATS, {16, 8})]

    assert list(in_order(seen, entries)) == [
        Collective(kind="all_reduce", dtype="float32", bytes=32),
        FOUR_FLOATS,
        Collective(kind="all_reduce", dtype="float32", bytes=8),
    ]


def test_what_was_seen_keeps_its_kind_and_its_largest_tensor():
    """Over gloo the recorder calls a reduce-scatter an all-reduce, and knows inputs alone."""
    entries = [recorded("all_reduce", 4), recorded("_all_gather_base", 2)]
    seen = [Seen(FOUR_FLOATS, {16, 8}), Seen(TWO_FLOATS, {16, 8})]

    assert list(in_order(seen, entries)) == [FOUR_FLOATS, TWO_FLOATS]


def test_without_a_recorder_what_was_seen_is_all():
    seen = [Seen(FOUR_FLOATS, {16}), Seen(TWO_FLOATS, {16})]

    assert list(in_order(seen, [])) == [FOUR_FLOATS, TWO_FLOATS]


def test_both_call_a_collective_by_one_name():
    (collective,) = in_order([], [recorded("_all_gather_base", 2, dtype="BFloat16")])

    assert collective == Collective(kind="all_gather", dtype="bfloat16", bytes=4)


def test_a_gpus_recorder_is_read_when_its_collectives_are_done(monkeypatch):
    done = []
    for owner, name, stand_in in (
        (torch.cuda, "is_initialized", lambda: True),
        (torch.cuda, "synchronize", lambda: done.append("synchronise")),
        (torch.distributed, "get_backend", lambda: "nccl"),
        (structure, "flight_recorder_entries", lambda backend: done.append("read") or []),
    ):
        monkeypatch.setattr(owner, name, stand_in)

    structure.count_structure(nn.Linear(1, 1), lambda: done.append("step"))

    assert done == ["synchronise", "read", "step", "synchronise", "read"]
