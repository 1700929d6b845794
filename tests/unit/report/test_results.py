"""The results file holds everything, can be read back, and is never half written."""

from __future__ import annotations

import errno
import os

import msgspec
import pytest

from ddp_perf.core.verdict import Outcome
from ddp_perf.report.results import ResultsFile, results_schema, write_results
from tests.builders import make_case, make_failure, make_finding, make_measurement, make_result


@pytest.fixture
def result():
    case = make_case()
    measurement = msgspec.structs.replace(
        make_measurement(case, [0.01, 0.011]),
        failures=(make_failure(case, stacks={"rank 0": "x"}),),
    )
    finding = make_finding(case, Outcome.REGRESSION, ratio=1.1, interval=(1.05, 1.15))
    return make_result([measurement], findings=(finding,), saved={case.id: "stored"})


def test_everything_written_is_read_back(tmp_path, result):
    path = tmp_path / "results.json"

    write_results(path, [result], complete=True)

    read = msgspec.json.decode(path.read_bytes(), type=ResultsFile)
    assert read == ResultsFile(schema_version=1, complete=True, suites=(result,))


def test_a_session_without_results_is_a_file_too(tmp_path):
    path = tmp_path / "results.json"

    write_results(path, [], complete=True)

    assert msgspec.json.decode(path.read_bytes()) == {
        "schema_version": 1,
        "complete": True,
        "suites": [],
    }


def test_a_full_disk_leaves_the_last_results(tmp_path, result, monkeypatch):
    path = tmp_path / "results.json"
    write_results(path, [], complete=False)
    before = path.read_bytes()

    def fail(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="No space left"):
        write_results(path, [result], complete=True)

    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_the_schema_describes_the_file_as_written(tmp_path, result):
    path = tmp_path / "results.json"
    write_results(path, [result], complete=True)
    written = msgspec.json.decode(path.read_bytes())

    schema = results_schema()["$defs"]

    assert schema["ResultsFile"]["properties"].keys() == written.keys()
    assert schema["SuiteResult"]["properties"].keys() == written["suites"][0].keys()
