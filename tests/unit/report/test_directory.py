"""The directory of a report: each file is complete, and lies within the directory."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import msgspec
import pytest

from ddp_perf.errors import ResultsError
from ddp_perf.render.model import Status
from ddp_perf.report.directory import FILES, write_report
from ddp_perf.report.session_report import PAGE
from ddp_perf.report.source import curve_for
from ddp_perf.selftest.curve import selftest_json
from ddp_perf.selftest.trials import power_curve
from ddp_perf.session.result import read_results
from tests.builders import (
    make_case,
    make_collectives,
    make_environment,
    make_hostile_result,
    make_measurement,
    make_result,
)
from tests.reports import make_source, make_suite_result
from tests.unit.selftest.selftest_machine import Machine, make_request

RECORDED = Path(__file__).parents[1] / "session" / "recorded" / "results_version_1.json"
# A session always has these; the others depend on what it measured.
TEXTS = {name for name in FILES if not name.startswith(("SUITE_", "work.", "duel."))} - {
    "results.json",
    "techniques.csv",
}
PLOTS = {
    f"quick_{name}.{kind}"
    for name in ("throughput", "speedup_efficiency")
    for kind in ("png", "svg")
}


def names(directory):
    return {path.name for path in directory.iterdir()}


def test_write_report_writes_every_file_with_the_same_status(tmp_path):
    report = write_report(tmp_path / "new" / "report", make_source())

    assert names(tmp_path / "new" / "report") == TEXTS | PLOTS
    assert report.status is Status.RED
    assert (tmp_path / "new" / "report" / "quick_throughput.png").read_bytes()[:4] == b"\x89PNG"


def test_a_report_without_measurements_has_every_text_and_no_plot(tmp_path):
    write_report(tmp_path, make_source(make_result([])))

    assert names(tmp_path) == TEXTS


def test_a_hostile_suite_name_stays_in_the_directory(tmp_path):
    directory = tmp_path / "report"
    write_report(directory, make_source(make_hostile_result()))

    assert names(tmp_path) == {"report"}
    assert len(names(directory) - TEXTS) == 2  # of throughput; there is no scaling


def test_a_case_name_in_any_script_has_its_files(tmp_path):
    case = make_case(id="模型-ddp-fp32-ws2-b64-😀")
    write_report(tmp_path, make_source(make_result([make_measurement(case, [0.01])])))

    assert "模型" in (tmp_path / PAGE).read_text(encoding="utf-8")
    assert "模型" in (tmp_path / "quick_throughput.svg").read_text(encoding="utf-8")
    assert "U+6A21U+578B-ddp" in (tmp_path / "summary_table.tex").read_text(encoding="utf-8")


def test_a_suite_of_collectives_has_a_report(tmp_path):
    cases = make_collectives()
    result = make_result([make_measurement(case, [0.001] * 3) for case in cases])
    write_report(tmp_path, make_source(result))

    page = (tmp_path / PAGE).read_text(encoding="utf-8")
    assert "busbw GB/s" in page
    assert "speed-up" not in page.lower()
    assert "Throughput against ranks" not in page


def test_a_full_disk_error_names_the_file_and_keeps_the_old_one(tmp_path, monkeypatch):
    write_report(tmp_path, make_source(make_result([])))
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def fail(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(ResultsError) as caught:
        write_report(tmp_path, make_source())

    assert str(caught.value) == f"{tmp_path / PAGE}: cannot be written: No space left on device"
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.fixture
def selftest(tmp_path):
    path = tmp_path / "selftest.json"
    curve = power_curve(make_request(), Machine().launches(40), make_environment())
    path.write_bytes(selftest_json(curve))
    return path


def test_the_self_test_of_this_machine_is_shown(tmp_path, selftest):
    suites = (make_suite_result(),)
    curve = curve_for(suites, selftest)
    assert curve is not None
    source = msgspec.structs.replace(make_source(*suites), curve=curve)
    write_report(tmp_path / "report", source)

    page = (tmp_path / "report" / PAGE).read_text(encoding="utf-8")
    assert "What this gate detects on this machine" in page


def test_the_self_test_of_another_machine_is_not_shown(selftest):
    other = make_suite_result(environment=make_environment(accelerator_key="h200"))

    assert curve_for((other,), selftest) is None


def test_without_a_self_test_there_is_no_curve(tmp_path):
    assert curve_for((make_suite_result(),), tmp_path / "selftest.json") is None


def test_a_broken_self_test_error_names_the_file_and_the_remedy(selftest):
    selftest.write_bytes(selftest.read_bytes()[:-20])

    with pytest.raises(ResultsError, match=r"selftest\.json: is cut short.*remove it"):
        curve_for((make_suite_result(),), selftest)


def test_a_report_of_a_recorded_results_file_is_written(tmp_path):
    write_report(tmp_path, make_source(*read_results(RECORDED).suites))

    assert (tmp_path / PAGE).stat().st_size > 0
