"""A merged file has all ranks, and no two ranks share an identity."""

from __future__ import annotations

import gzip
import json

import pytest

from ddp_perf.errors import TraceError
from ddp_perf.traces.chrome import merge_traces, read_chrome_trace
from tests.unit.traces.kineto import file, kernel


def rank_file(path, rank, base_ns, **header):
    named = {"ph": "M", "name": "process_name", "pid": 1, "tid": 0, "args": {"name": "python"}}
    sorted_ = {"ph": "M", "name": "process_sort_index", "pid": 1, "args": {"sort_index": 5}}
    flow = {"ph": "s", "id": 7, "cat": "ac2g", "name": "ac2g", "pid": 1, "tid": 1, "ts": 3}
    span = {"ph": "X", "cat": "Trace", "name": "all", "pid": "Spans", "ts": 0, "dur": 9}
    events = (named, sorted_, flow, span, kernel("gemm", 10, 5))
    path.write_text(file(*events, rank=rank, baseTimeNanoseconds=base_ns, **header))
    return path


@pytest.fixture
def merged(tmp_path):
    paths = {rank: rank_file(tmp_path / f"{rank}.json", rank, 1000 * rank) for rank in (0, 1)}
    merge_traces(paths, tmp_path / "merged.json.gz")
    return json.loads(gzip.decompress((tmp_path / "merged.json.gz").read_bytes()))


def of(merged, name):
    return [event for event in merged["traceEvents"] if event["name"] == name]


def test_each_rank_has_its_own_named_processes(merged):
    assert len({event["pid"] for event in merged["traceEvents"]}) == 4
    assert [e["args"]["name"] for e in of(merged, "process_name")] == [
        "rank 0: python",
        "rank 1: python",
    ]
    assert [e["args"]["sort_index"] for e in of(merged, "process_sort_index")] == [0, 1]


def test_processes_of_two_hosts_are_named_with_their_host(tmp_path):
    paths = {
        rank: rank_file(tmp_path / f"{rank}.json", rank, 0, host_name=host)
        for rank, host in enumerate("ab")
    }
    merge_traces(paths, tmp_path / "merged.json.gz")
    merged = json.loads(gzip.decompress((tmp_path / "merged.json.gz").read_bytes()))

    assert [event["args"]["name"] for event in of(merged, "process_name")] == [
        "rank 0 on a, by its clock: python",
        "rank 1 on b, by its clock: python",
    ]


def test_flows_of_two_ranks_have_different_ids(merged):
    first, second = of(merged, "ac2g")

    assert first["id"] != second["id"]
    assert second["id"] < 2**53  # JavaScript's numbers


def test_times_have_the_first_ranks_base(merged):
    assert [event["ts"] for event in of(merged, "gemm")] == [10, 11]


def test_merge_refuses_a_cut_trace_and_writes_nothing(tmp_path):
    (tmp_path / "0.json").write_text(file(kernel("gemm", 10, 5))[:-9])

    with pytest.raises(TraceError, match=r"0\.json: is cut short, or is not JSON"):
        merge_traces({0: tmp_path / "0.json"}, tmp_path / "merged.json.gz")

    assert not (tmp_path / "merged.json.gz").exists()


def test_merged_file_is_not_analysed_as_one_rank(merged, tmp_path):
    with pytest.raises(TraceError, match="contains several ranks"):
        read_chrome_trace(tmp_path / "merged.json.gz")
