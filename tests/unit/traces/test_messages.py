"""Messages of collectives are read from the arguments of several versions of torch."""

from __future__ import annotations

import pytest

from ddp_perf.traces.chrome import Message, collective_kind, read_chrome_trace
from ddp_perf.traces.timeline import timeline_of
from tests.unit.traces.kineto import MAIN, all_reduce, event, file, gloo, kernel, launch

NCCL = {
    "Collective name": "allreduce",
    "In msg nelems": 1024,
    "Out msg nelems": 1024,
    "dtype": "BFloat16",
    "Group size": 8,
    "Process Group Name": "0",
    "Process Group Description": "default_pg",
    "Process Group Ranks": "[0, 1, 2, 3, 4, 5, 6, 7]",
}


def only(timeline):
    (message,) = timeline.messages.values()
    return message


def test_message_is_read_from_the_kernels_arguments(timeline):
    assert only(timeline(all_reduce(0, 10, **NCCL))) == Message(
        kind="all_reduce",
        dtype="bfloat16",
        bytes=2048,
        group="default_pg",
        group_ranks="[0, 1, 2, 3, 4, 5, 6, 7]",
        group_size=8,
    )


def test_bytes_are_those_of_the_larger_of_input_and_output(timeline):
    args = {**NCCL, "Collective name": "_allgather_base", "Out msg nelems": 8192}

    message = only(timeline(kernel("ncclDevKernel_AllGather_RING_LL", 0, 10, **args)))

    assert (message.kind, message.bytes) == ("all_gather", 16384)


def test_group_without_a_description_has_its_name(timeline):
    args = {**NCCL, "Process Group Name": "3", "Process Group Description": "undefined"}

    assert only(timeline(all_reduce(0, 10, **args))).group == "3"


def test_hosts_range_around_the_launch_completes_the_message(timeline):
    sent = {"Input Dims": [[2, 1024]], "Input type": ["float"]}
    around = event("user_annotation", "nccl:all_to_all", 0, 20, MAIN, **sent)
    other = event("user_annotation", "nccl:all_reduce", 0, 20, 999)  # of another thread
    send = kernel("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t", 30, 5, correlation=1)

    message = only(timeline(around, other, launch(10, 1), send))

    assert message == Message(kind="all_to_all", dtype="float32", bytes=8192)


def test_kernel_name_alone_gives_the_kind(timeline):
    assert only(timeline(all_reduce(0, 10))) == Message(kind="all_reduce")
    assert only(timeline(kernel("ncclDevKernel_Generic(x)", 0, 10))) == Message(
        kind="ncclDevKernel_Generic"
    )


def test_gloo_message_is_read_from_the_shapes_of_its_range(timeline):
    assert only(timeline(gloo(0, 10, elements=340))) == Message(
        kind="all_reduce", dtype="float32", bytes=1360
    )


def test_argument_with_invalid_utf8_is_ignored(tmp_path):
    path = tmp_path / "trace.json"
    path.write_bytes(file(all_reduce(0, 10, dtype="NAME")).encode().replace(b"NAME", b"\xff"))

    assert only(timeline_of(read_chrome_trace(path))) == Message(kind="all_reduce")


@pytest.mark.parametrize("args", ["a string", ["a list"], {"dtype": 5, "Group size": "two"}, None])
def test_arguments_of_another_form_are_ignored(timeline, args):
    one = {**all_reduce(0, 10), "args": args}

    assert only(timeline(one)) == Message(kind="all_reduce")


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("AllReduce", "all_reduce"),
        ("allreduce_coalesced", "all_reduce"),
        ("_allgather_base", "all_gather"),
        ("_all_gather_base", "all_gather"),
        ("all_gather_into_tensor_coalesced", "all_gather"),
        ("reduce_scatter_tensor_coalesced", "reduce_scatter"),
        ("ReduceScatter", "reduce_scatter"),
        ("_reduce_scatter_base", "reduce_scatter"),
        ("alltoall_base", "all_to_all"),
        ("all_to_allv", "all_to_all"),
        ("Broadcast", "broadcast"),
        ("SendRecv", "send_recv"),
    ],
)
def test_variants_of_a_collective_have_one_kind(name, kind):
    assert collective_kind(name) == kind
