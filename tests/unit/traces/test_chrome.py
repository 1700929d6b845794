"""Files as profilers, disks and other programs leave them."""

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
def test_a_file_is_read_whatever_its_name_says(read, content):
    trace = read(content)

    assert [(event.ts, event.dur) for event in trace.events] == [(10, 5), (20, 5)]
    assert (trace.distributed.rank, trace.distributed.world_size) == (0, 2)
    assert (trace.base_ns, trace.host, trace.dropped) == (7, "n1", 0)


def test_events_may_come_without_a_header(read):
    assert len(read(json.dumps([kernel("gemm", 1, 2)])).events) == 1


@pytest.mark.parametrize("token", ["NaN", "nan", "-nan", "Infinity", "-Infinity", "inf", "-inf"])
def test_numbers_that_json_does_not_know_cost_no_event(read, token):
    one = kernel("a kernel of NaN, inf", 10, 5, occupancy="TOKEN")

    trace = read(file(one).replace('"TOKEN"', token))

    assert [(event.name, event.ts) for event in trace.events] == [("a kernel of NaN, inf", 10)]


def test_a_time_that_is_no_number_drops_its_event_alone(read):
    text = file(kernel("bad", 10, 5), kernel("good", 20, 5)).replace('"ts": 10', '"ts": NaN')

    trace = read(text)

    assert [event.name for event in trace.events] == ["good"]
    assert trace.dropped == 1


def test_entries_that_are_no_event_are_dropped_and_counted(read):
    good = json.dumps(kernel("good", 20, 5))

    trace = read(f'{{"traceEvents": [{good}, 5, "x", {{"name": ["a list"]}}]}}')

    assert (len(trace.events), trace.dropped) == (1, 3)


def test_bytes_that_are_no_text_and_bare_control_characters_cost_no_event(read):
    raw = file(kernel("NAME", 10, 5)).encode().replace(b"NAME", b"a\xff\tb")

    (event,) = read(raw).events

    assert event.name == "a� b"


def test_times_and_processes_may_be_strings(read):
    one = {**kernel("gemm", 1, 2), "ts": "10.5", "dur": "2", "pid": "GPU 0", "tid": "stream 7"}

    (event,) = read(file(one)).events

    assert (event.ts, event.dur, event.pid) == (10.5, 2, "GPU 0")


def test_a_header_of_another_form_costs_no_event(read):
    trace = read(json.dumps({"distributedInfo": 5, "traceEvents": [kernel("gemm", 1, 2)]}))

    assert trace.distributed.rank is None
    assert len(trace.events) == 1


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (TWO[: len(TWO) // 2], "cut short, or no JSON"),
        (gzip.compress(TWO.encode())[:60], "cut short, or damaged"),
        ("", "cut short, or no JSON"),
        ("hello", "cut short, or no JSON"),
        ('{"results": []}', "no traceEvents, so no trace"),
        ('{"traceEvents": 5}', "no traceEvents, so no trace"),
        ('{"traceEvents": [], "mergedRanks": [0, 1]}', "holds several ranks"),
    ],
    ids=["cut", "cut archive", "empty", "text", "another's", "no list", "merged"],
)
def test_what_cannot_be_read_is_refused_with_a_remedy(read, content, says):
    with pytest.raises(TraceError, match=rf"trace\.json: {says}.*; \w+") as error:
        read(content)

    assert "\n" not in str(error.value)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(TraceError, match=r"gone\.json: cannot be read: No such file"):
        read_chrome_trace(tmp_path / "gone.json")
