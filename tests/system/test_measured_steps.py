"""The steps that a rank reports: each timed step once, apart from the warm-ups."""

from __future__ import annotations

import pytest

from ddp_perf.core.launch import LaunchResult


@pytest.fixture
def launched(launcher, request_of, tmp_path):
    """``launched(…)``: the ranks of the paced workload, of eight steps a launch."""

    def launch(*, warmup=2, **model):
        arguments = {"waits": str(tmp_path / "waits"), **model}
        request = request_of("paced:build", arguments, steps=8, warmup=warmup)
        outcome = launcher.launch(request)
        assert isinstance(outcome, LaunchResult), str(outcome)
        return outcome.ranks

    return launch


def milliseconds(rank):
    """Return the numbers of the warm-ups and of the timed steps: step n takes n ms."""
    warm_ups, steps = ([round(s * 1e3) for s in times] for times in (rank.warmup_s, rank.step_s))
    return warm_ups, steps


@pytest.mark.parametrize("warmup", [0, 1, 3])
def test_warm_ups_come_first_and_every_later_step_is_reported(launched, warmup):
    for rank in launched(warmup=warmup):
        warm_ups, steps = milliseconds(rank)
        first = (warm_ups + steps)[0]  # steps before the timed loop have the numbers before it
        assert warm_ups + steps == list(range(first, first + 8))
        assert len(warm_ups) == warmup
        # Of the measured steps, by the clock of the process.
        halves = [wall_s / 2 for wall_s in rank.step_s]
        assert rank.cpu_s == pytest.approx(halves, abs=5e-6)
        assert rank.waited_s == (0.0,) * len(steps)


@pytest.mark.parametrize("waiting_rank", [0, 1])
def test_all_ranks_go_on_together_until_steps_are_clean_on_each(launched, waiting_rank):
    """One rank waits in the second timed step, so as many steps follow on both."""
    quiet = launched()
    second = milliseconds(quiet[0])[1][1]

    ranks = launched(waiting_rank=waiting_rank, first=second, last=second)

    assert [len(rank.step_s) for rank in quiet] == [6, 6]
    for number, rank in enumerate(ranks):
        warm_ups, steps = milliseconds(rank)
        assert warm_ups == [second - 3, second - 2]
        assert steps == list(range(second - 1, second + 11))
        halves = [wall_s / 2 for wall_s in rank.step_s]
        assert rank.cpu_s == pytest.approx(halves, abs=5e-6)
        waits = [0.2e-3 * second if n == second and number == waiting_rank else 0 for n in steps]
        assert rank.waited_s == pytest.approx(waits, abs=1e-9)
    assert ranks[0].digest == ranks[1].digest != quiet[0].digest


def test_ranks_of_a_machine_that_stays_busy_end_at_five_times_the_schedule(launched):
    ranks = launched(waiting_rank=1, last=1000)

    assert [len(rank.step_s) for rank in ranks] == [5 * 6] * 2
    assert [len(rank.warmup_s) for rank in ranks] == [2, 2]
    assert [sum(rank.waited_s) > 0 for rank in ranks] == [False, True]


def test_the_control_is_timed_before_the_steps_and_after_them(launched):
    for rank in launched():
        count = len(rank.control_s)
        before, after = rank.control_s[: count // 2], rank.control_s[count // 2 :]
        assert len(before) == len(after) >= 4
        # The workload's clock, which stands still but for its readings, was not yet set before.
        assert set(map(_rounded, after)) == {_rounded(1e-6)}
        assert not set(map(_rounded, after)) & set(map(_rounded, before))


def _rounded(seconds):
    return round(seconds, 8)
