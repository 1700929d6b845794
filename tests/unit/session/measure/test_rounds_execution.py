"""A plan runs to its end even if cases fail."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddp_perf.session.measure.rounds import interleave, run_plan
from tests.builders import (
    FakeLauncher,
    NotedProgress,
    make_case,
    make_failure,
    make_launch,
    make_measurement,
    make_result,
)
from tests.suites import make_bench

ROOT = Path("checkout")
A, B, C = (make_case(id=name) for name in "abc")  # three launches each


class Run:
    """Run a plan and record everything that it reports."""

    def __init__(self, cases, answer=None):
        self.launcher, self.progress = FakeLauncher(answer), NotedProgress()
        self.bench = make_bench(ROOT, self.launcher, progress=self.progress)
        self.plan = interleave([(case, case.schedule.launches) for case in cases], self.bench)
        self.before = make_result([make_measurement(case, []) for case in cases]).measurements
        self.rounds = []

    def __call__(self):
        return run_plan(
            self.plan,
            self.bench,
            measured=self.before,
            on_round=self._note_round,
        )

    def _note_round(self, measured):
        self.rounds.append({name: len(m.launches) for name, m in measured.items()})


def failing(case_id, round_):
    def answer(request):
        if (request.case.id, request.round) == (case_id, round_):
            return make_failure(request.case, request.round)
        return make_launch(request.case, request.round)

    return answer


def test_launches_are_collected_by_case_in_order():
    measured = Run([A, B])()

    assert list(measured) == ["a", "b"]
    assert [launch.round for launch in measured["a"].launches] == [0, 1, 2]
    assert measured["a"].failures == measured["b"].failures == ()


def test_a_failed_case_is_not_launched_again_and_the_others_go_on():
    run = Run([A, B, C], failing("b", 1))

    measured = run()

    assert [case_id for case_id, _ in run.launcher.asked] == list("abcabcac")
    assert len(measured["b"].launches) == len(measured["b"].failures) == 1
    assert len(measured["c"].launches) == 3


def test_a_case_that_always_fails_does_not_stop_the_others():
    measured = Run([A, B], failing("a", 0))()

    assert measured["a"].launches == ()
    assert len(measured["b"].launches) == 3


def test_measurements_are_handed_over_after_every_round():
    run = Run([A, B], failing("b", 1))

    run()

    assert run.rounds == [{"a": 1, "b": 1}, {"a": 2, "b": 1}, {"a": 3, "b": 1}]


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError], ids=lambda error: error.__name__)
def test_an_interrupted_run_hands_over_its_measurements(error):
    def answer(request):
        if (request.case.id, request.round) == ("b", 1):
            raise error
        return make_launch(request.case, request.round)

    run = Run([A, B], answer)

    with pytest.raises(error):
        run()

    assert run.rounds[-1] == {"a": 2, "b": 1}


def test_progress_gets_every_outcome():
    run = Run([A, B], failing("b", 1))

    run()

    assert run.progress.finished == run.launcher.asked


def test_further_rounds_are_added_to_the_measurements():
    run = Run([A, B])
    run.before = run()
    run.plan = interleave([(B, 2)], run.bench, start=3)

    measured = run()

    assert [launch.round for launch in measured["b"].launches] == [0, 1, 2, 3, 4]
    assert measured["a"] == run.before["a"]
