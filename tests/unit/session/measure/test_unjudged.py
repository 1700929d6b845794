"""Cases that are measured once: in turn, until one fails, and nothing is written."""

from __future__ import annotations

import msgspec
import pytest

from ddp_perf.errors import LaunchError
from ddp_perf.session.figures import case_figures
from ddp_perf.session.measure.further_launches import measure_unjudged
from tests.builders import (
    FakeLauncher,
    make_capacity,
    make_cases,
    make_failure,
    make_gpu_machine,
    make_launch,
)

CASES = make_cases(world_sizes=[1, 2], batch_sizes=[16], launches=2)
ALONE, TWO = (case.id for case in CASES)


def measured(launcher, directory, cases=CASES, capacity=None):
    seen = []
    result = measure_unjudged(
        cases,
        launcher,
        capacity or make_capacity(),
        root=directory,
        on_launch=lambda request, outcome: seen.append(request.case.id),
    )
    return result, seen


def test_cases_are_launched_in_turn_and_compared_with_one_rank(tmp_path):
    launcher = FakeLauncher()

    result, seen = measured(launcher, tmp_path)

    assert launcher.asked == [(ALONE, 0), (TWO, 0), (ALONE, 1), (TWO, 1)]
    assert seen == [ALONE, TWO, ALONE, TWO]
    assert case_figures(result, TWO).scaling.speedup == pytest.approx(2)
    assert result.findings == ()
    assert list(tmp_path.iterdir()) == []


def test_the_first_failure_ends_it_and_what_was_measured_stays(tmp_path):
    def answer(request):
        launch = make_failure if request.case.id == TWO else make_launch
        return launch(request.case, request.round)

    launcher = FakeLauncher(answer)

    result, _ = measured(launcher, tmp_path)

    assert launcher.asked == [(ALONE, 0), (TWO, 0)]
    assert result.measurements[ALONE].is_complete
    assert result.measurements[TWO].failed
    assert result.summaries[TWO] == ()


def test_ranks_import_from_the_root_and_write_nothing(tmp_path):
    requests = []

    def answer(request):
        requests.append(request)
        return make_launch(request.case, request.round)

    measured(FakeLauncher(answer), tmp_path)

    assert {request.import_paths for request in requests} == {(str(tmp_path),)}
    assert {(request.records, request.output) for request in requests} == {(None, None)}


def test_gpus_that_torch_cannot_use_are_refused_before_a_launch(tmp_path):
    class WithoutCuda(FakeLauncher):
        def runtime(self, case=None):
            return msgspec.structs.replace(super().runtime(case), cuda=None)

    launcher = WithoutCuda()
    cases = make_cases(tier="gpu", world_sizes=[1], batch_sizes=[16])

    with pytest.raises(LaunchError, match="built without CUDA"):
        measured(launcher, tmp_path, cases, make_capacity(make_gpu_machine("NVIDIA H100")))
    assert launcher.asked == []
