"""Trace files are read, repaired or refused, as profilers and disks leave them."""

from __future__ import annotations

import gzip
import json

import pytest

from ddp_perf.errors import TraceError
from ddp_perf.traces.chrome import read_chrome_trace
from tests.unit.traces.kineto import file, kernel

TWO = file(kernel("gemm", 10, 5), kernel("gemm", 20, 5), baseTimeNanoseconds=7, host_name="n1")


@pytest.fixture
def read(tmp_path):
    def write_and_read(content):
        path = tmp_path / "trace.json"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return read_chrome_trace(path)

    return write_and_read


@pytest.mark.parametrize("content", [TWO, gzip.compress(TWO.encode())], ids=["plain", "zipped"])
def test_gzipped_file_is_read_whatever_its_name_is(read, content):
    trace = read(content)

    assert [(event.ts, event.dur) for event in trace.events] == [(10, 5), (20, 5)]
    assert (trace.distributed.rank, trace.distributed.world_size) == (0, 2)
    assert (trace.base_ns, trace.host, trace.dropped) == (7, "n1", 0)


def test_events_without_a_header_are_read(read):
    assert len(read(json.dumps([kernel("gemm", 1, 2)])).events) == 1


@pytest.mark.parametrize("token", ["NaN", "nan", "-nan", "Infinity", "-Infinity", "inf", "-inf"])
def test_event_with_a_number_that_json_lacks_is_kept(read, token):
    one = kernel("a kernel of NaN, inf", 10, 5, occupancy="TOKEN")

    trace = read(file(one).replace('"TOKEN"', token))

    assert [(event.name, event.ts) for event in trace.events] == [("a kernel of NaN, inf", 10)]


def test_event_with_an_invalid_time_is_dropped_alone(read):
    text = file(kernel("bad", 10, 5), kernel("good", 20, 5)).replace('"ts": 10', '"ts": NaN')

    trace = read(text)

    assert [event.name for event in trace.events] == ["good"]
    assert trace.dropped == 1


def test_invalid_entries_are_dropped_and_counted(read):
    good = json.dumps(kernel("good", 20, 5))

    trace = read(f'{{"traceEvents": [{good}, 5, "x", {{"name": ["a list"]}}]}}')

    assert (len(trace.events), trace.dropped) == (1, 3)


def test_event_with_invalid_utf8_and_control_characters_is_kept(read):
    raw = file(kernel("NAME", 10, 5)).encode().replace(b"NAME", b"a\xff\tb")

    (event,) = read(raw).events

    assert event.name == "a� b"


def test_times_and_processes_may_be_strings(read):
    one = {**kernel("gemm", 1, 2), "ts": "10.5", "dur": "2", "pid": "GPU 0", "tid": "stream 7"}

    (event,) = read(file(one)).events

    assert (event.ts, event.dur, event.pid) == (10.5, 2, "GPU 0")


def test_invalid_header_drops_no_event(read):
    trace = read(json.dumps({"distributedInfo": 5, "traceEvents": [kernel("gemm", 1, 2)]}))

    assert trace.distributed.rank is None
    assert len(trace.events) == 1


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (TWO[: len(TWO) // 2], "is cut short, or is not JSON"),
        (gzip.compress(TWO.encode())[:60], "is cut short or damaged"),
        ("", "is cut short, or is not JSON"),
        ("hello", "is cut short, or is not JSON"),
        ('{"results": []}', "has no traceEvents, so it is not a trace"),
        ('{"traceEvents": 5}', "has no traceEvents, so it is not a trace"),
        ('{"traceEvents": [], "mergedRanks": [0, 1]}', "contains several ranks"),
    ],
    ids=["cut", "cut archive", "empty", "text", "another's", "no list", "merged"],
)
def test_unreadable_file_is_refused_with_a_remedy(read, content, expected):
    with pytest.raises(TraceError, match=rf"trace\.json: {expected}.*; \w+") as error:
        read(content)

    assert "\n" not in str(error.value)


def test_missing_file_is_named(tmp_path):
    with pytest.raises(TraceError, match=r"gone\.json: cannot be read: No such file"):
        read_chrome_trace(tmp_path / "gone.json")


def test_a_file_that_unzips_to_far_more_than_a_trace_is_refused(tmp_path):
    path = tmp_path / "bomb.json.gz"
    path.write_bytes(gzip.compress(b" " * 2**27))

    with pytest.raises(TraceError, match=r"bomb.json.gz: unzips to more than 100 times its size"):
        read_chrome_trace(path)
