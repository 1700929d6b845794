"""The order of a self-test's launches, and runs that end and continue."""

from __future__ import annotations

import contextlib
import math
from collections import Counter

import pytest

from ddp_perf.errors import LaunchError
from ddp_perf.selftest.trials import (
    PERCENTS,
    finished,
    launches_for,
    percent_of,
    power_curve,
    run_selftest,
)
from ddp_perf.session.measure.experiment import LoggedLaunch
from ddp_perf.system.ledger import Ledger
from tests.builders import FakeLauncher, make_environment, make_failure
from tests.unit.selftest.selftest_machine import CASE, Machine, make_request

ROUND = len(PERCENTS) + 2


def rounds(launches, count):
    first = 3 * launches
    percents = [percent_of(number, launches) for number in range(first + count * ROUND)]
    assert percents[:first] == [0] * first
    return [percents[first + i * ROUND : first + (i + 1) * ROUND] for i in range(count)]


@pytest.mark.parametrize("launches", [2, 5])
def test_after_the_first_baseline_each_round_has_every_slow_down_and_two_unslowed(launches):
    for round_ in rounds(launches, 20):
        assert Counter(round_) == Counter({0: 2, **dict.fromkeys(PERCENTS, 1)})


def test_the_order_changes_from_round_to_round():
    assert len(set(map(tuple, rounds(5, 20)))) > 15
    assert {round_[0] for round_ in rounds(5, 60)} == {0, *PERCENTS}


@pytest.mark.parametrize("launches", [2, 3, 5, 10])
@pytest.mark.parametrize("trials", [1, 5, 12])
def test_launches_for_returns_the_fewest_cycles_for_the_trials(launches, trials):
    def least(count):
        curve = power_curve(
            make_request(launches=launches),
            Machine().launches(count, launches=launches),
            make_environment(),
        )
        return min(point.found.trials for point in curve.points)

    needed = launches_for(trials, launches)
    assert least(needed) >= trials
    assert least(needed - launches * ROUND) < trials


class Run:
    """`run_selftest` on a log in a directory, with a record of every launch."""

    def __init__(self, directory, monkeypatch, *, launch_s=2.0):
        self.directory = directory
        self.now = 100.0
        self.told = []
        self.launcher = None
        self._launch_s = launch_s
        monkeypatch.setattr("time.monotonic", lambda: self.now)

    def __call__(self, answer=None, *, budget_s=math.inf):
        """Return the failure, if any, and all launches of the log."""
        answer = answer or Machine().answer

        def timed(request):
            self.now += self._launch_s
            return answer(request)

        self.launcher = FakeLauncher(timed)
        log = Ledger(self.directory / "launches.jsonl", LoggedLaunch, {"case": "a"})
        with contextlib.closing(log):
            failure = run_selftest(
                make_request(),
                log,
                self.launcher,
                until=self.now + budget_s,
                on_launch=self.told.append,
            )
        return failure, log.entries

    def kept(self):
        log = Ledger(self.directory / "launches.jsonl", LoggedLaunch, {"case": "a"})
        log.close()
        return log.entries


@pytest.fixture
def run(tmp_path, monkeypatch):
    return Run(tmp_path, monkeypatch)


def failing_at(number, error):
    def answer(request):
        if request.round < number:
            return Machine().answer(request)
        if isinstance(error, type):
            raise error
        return error

    return answer


def test_every_launch_has_the_slow_down_of_its_place(run):
    asked = []

    def answer(request):
        asked.append((request.case, [i.text for i in request.injections]))
        return Machine().answer(request)

    run(answer, budget_s=100)

    due = [percent_of(number, 5) for number in range(len(asked))]
    assert asked == [(CASE, [f"compute:{percent}%"] if percent else []) for percent in due]
    assert set(due) > {0, 2}


def test_a_launch_that_does_not_fit_the_budget_is_not_begun(run):
    _, launches = run(budget_s=21)

    assert len(launches) == 10
    assert run.now == 120.0
    assert run.told == list(range(1, 11))


def test_the_log_has_the_time_and_the_figures_of_each_launch(run):
    _, (launch, *_) = run(budget_s=5)

    assert launch.wall_s == 2.0
    assert launch.started.endswith("+00:00")
    assert launch.values["step_time"] == pytest.approx(0.02, rel=0.05)
    assert "efficiency" not in launch.summary.values


def test_a_second_run_continues_like_one_long_run(run):
    run(budget_s=45)
    first = run.launcher.asked
    run(budget_s=81)

    assert [round_ for _, round_ in first + run.launcher.asked] == list(range(62))
    assert [launch.arm for launch in run.kept()] == [str(percent_of(n, 5)) for n in range(62)]


def test_a_failed_launch_ends_the_run_and_finished_ones_are_kept(run):
    failure = make_failure(CASE, 7)

    ended, launches = run(failing_at(7, failure))

    assert ended == failure
    assert len(finished(launches)) == len(finished(run.kept())) == 7


def test_a_later_run_launches_again_what_failed(run):
    run(failing_at(7, make_failure(CASE, 7)))

    failure, launches = run(budget_s=21)

    assert failure is None
    assert [launch.block for launch in finished(launches)] == list(range(17))


@pytest.mark.parametrize("error", [KeyboardInterrupt, LaunchError])
def test_an_interrupted_run_keeps_finished_launches(run, error):
    with pytest.raises(error):
        run(failing_at(4, error))

    assert len(run.kept()) == 4
