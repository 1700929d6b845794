"""Profiled launches are separate launches; a failed one only costs its profile."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddp_perf.core.launch import LaunchRequest
from ddp_perf.render.terminal import report_text
from ddp_perf.report.session_report import build_suite
from ddp_perf.session.measure.further_launches import profile_cases
from ddp_perf.session.measure.rounds import profile_directory
from tests.builders import (
    FakeLauncher,
    make_case,
    make_cases,
    make_failure,
    make_launch,
    make_result,
)
from tests.suites import make_bench
from tests.unit.traces.kineto import file, gloo, operator, step

ONE, TWO = make_cases()


def traced(request: LaunchRequest):
    """Write the traces of two ranks; the second one enters the collective 30 µs later."""
    for rank in range(request.case.world_size):
        events = [step(1, 0, 100), operator("aten::mm", 0, 40), gloo(20 + 30 * rank, 60)]
        path = Path(request.profiling.directory) / f"rank{rank}.json.gz"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(file(*events[: request.case.world_size + 1], rank=rank))
    return make_launch(request.case, request.round)


@pytest.fixture
def profile(tmp_path):
    """``profile(cases, answer)`` returns the profiles and the requests to the launcher."""

    def run(cases, answer):
        launcher = FakeLauncher(answer)
        profiles = profile_cases(cases, 3, make_bench(tmp_path, launcher))
        return profiles, launcher.asked

    return run


def test_every_case_is_launched_once_more_and_its_traces_are_analysed(profile, tmp_path):
    profiles, asked = profile([ONE, TWO], traced)

    assert [case_id for case_id, _ in asked] == [ONE.id, TWO.id]
    assert profiles[ONE.id].analysis.comparison is None
    assert profiles[TWO.id].analysis.comparison.slowest == 1
    assert (profile_directory(tmp_path, TWO) / "merged.json.gz").is_file()


def test_a_failed_launch_is_reported_and_the_next_case_is_profiled(profile):
    def answer(request):
        return make_failure(request.case) if request.case == ONE else traced(request)

    profiles, _ = profile([ONE, TWO], answer)

    assert profiles[ONE.id].analysis is None
    assert profiles[ONE.id].problem.startswith(ONE.id)
    assert profiles[TWO.id].problem is None


def test_a_rank_without_a_trace_is_named(profile):
    profiles, _ = profile([TWO], lambda request: make_launch(request.case, request.round))

    assert "rank0.json.gz: cannot be read" in profiles[TWO.id].problem


def test_the_summary_of_profiles_fits_eighty_columns(profile):
    def answer(request):
        return make_failure(request.case) if request.case == ONE else traced(request)

    profiles = profile([ONE, TWO], answer)[0]
    text = report_text(build_suite(make_result([], profiles=profiles)), 80)

    assert max(len(line) for line in text.splitlines() if "/" not in line) <= 80
    (row,) = (line.split() for line in text.splitlines() if "aten::mm" in line)
    assert row[1:5] == ["0.100", "0.050", "0.0%", "aten::mm"]
    assert "all_reduce" in row
    assert f"no profile of {ONE.id}: " in text
    note = " ".join(text.split())
    assert "slowest rank: 1, the last in 1 of 1" in note
    assert "; busy 91% of the time" in note  # rank 1: idle for 10 of 110 µs


def test_any_case_id_gives_a_directory_name(tmp_path):
    case = make_case(id="mlp-ddp-NCCL_DEBUG_FILE=/tmp/x y-ws2")

    directory = profile_directory(tmp_path, case)

    assert directory.parent == tmp_path / "artifacts" / "profile" / case.suite
    assert directory.name == "mlp-ddp-NCCL_DEBUG_FILE=_tmp_x_y-ws2"
