"""Several files are analysed together, each with its rank; unusable files are refused."""

from __future__ import annotations

import pytest

from ddp_perf.errors import TraceError
from ddp_perf.traces.analysis import analyse_traces
from tests.unit.traces.kineto import all_reduce, event, file, gloo, kernel, launch, operator, step


@pytest.fixture
def write(tmp_path):
    """``write(name, *events, **header)`` writes a trace and returns its path."""

    def make(name, *events, **header):
        path = tmp_path / name
        path.write_text(file(*(events or [kernel("gemm", 0, 5)]), **header))
        return path

    return make


def test_ranks_are_in_order_and_compared(write):
    paths = [write(f"{rank}.json", all_reduce(rank, 5), rank=rank) for rank in (1, 0)]

    analysis = analyse_traces(paths)

    assert [rank.rank for rank in analysis.ranks] == [0, 1]
    assert [rank.world_size for rank in analysis.ranks] == [2, 2]
    assert analysis.comparison.matched == 1


def test_single_rank_has_no_comparison(write):
    assert analyse_traces([write("a.json")]).comparison is None


@pytest.mark.parametrize(
    ("names", "ranks"),
    [
        (["run_rank3.json", "run_rank1.json"], [1, 3]),
        (["rank-12.pt.trace.json", "rank_7.json"], [7, 12]),
        (["a.json", "b.json"], [0, 1]),
    ],
)
def test_rank_is_taken_from_the_file_name_or_the_position(write, names, ranks):
    analysis = analyse_traces([write(name, rank=None) for name in names])

    assert [rank.rank for rank in analysis.ranks] == ranks


def test_two_files_of_one_rank_are_refused(write):
    with pytest.raises(
        TraceError, match=r"b\.json: is of rank 0, and so is .*a\.json; give one file"
    ):
        analyse_traces([write("a.json"), write("b.json")])


@pytest.mark.parametrize(
    "events",
    [[], [step(1, 0, 5)], [event("kernel", "x", 0, -1, 1)]],
    ids=["empty", "annotations", "negative length"],
)
def test_trace_without_work_is_refused(tmp_path, events):
    path = tmp_path / "a.json"
    path.write_text(file(*events))

    with pytest.raises(TraceError, match=r"a\.json: has no kernel, and no operator of a CPU; "):
        analyse_traces([path])


@pytest.mark.parametrize(
    "sign",
    [launch(0, 1), event("user_annotation", "nccl:all_reduce", 0, 5, 1)],
    ids=["kernels", "collectives"],
)
def test_trace_with_only_the_host_side_of_gpu_work_is_refused(write, sign):
    path = write("a.json", operator("aten::mm", 0, 5), sign)

    with pytest.raises(TraceError, match=r"a\.json: has launches on a GPU, but no kernel; profile"):
        analyse_traces([path])


def test_ranges_without_a_time_are_counted(write):
    unfinished = {key: value for key, value in kernel("x", 0, 5).items() if key != "dur"}

    (rank,) = analyse_traces([write("a.json", kernel("gemm", 0, 5), unfinished)]).ranks

    assert rank.dropped == 1


def test_device_is_named(write):
    gpu = write("a.json", deviceProperties=[{"id": 0, "name": "H200"}, {"id": 1, "name": "H200"}])
    cpu = write("b.json", operator("aten::mm", 0, 5), gloo(0, 2), rank=1)

    assert [rank.device for rank in analyse_traces([gpu, cpu]).ranks] == ["H200", "CPU"]
