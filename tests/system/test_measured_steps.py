"""The steps that a rank reports: each timed step once, apart from the warm-ups."""

from __future__ import annotations

import pytest

from ddp_perf.core.launch import LaunchResult


@pytest.mark.parametrize("warmup", [0, 1, 3])
def test_warm_ups_come_first_and_every_later_step_is_reported(launcher, request_of, warmup):
    outcome = launcher.launch(request_of("paced:build", {}, steps=8, warmup=warmup))

    assert isinstance(outcome, LaunchResult), str(outcome)
    for rank in outcome.ranks:
        milliseconds = [round(s * 1e3) for s in (*rank.warmup_s, *rank.step_s)]
        first = milliseconds[0]  # steps before the timed loop, if any, have the numbers before it
        assert milliseconds == list(range(first, first + 8))
        assert len(rank.warmup_s) == warmup
        # Of the measured steps, by the thread's own clock.
        halves = [wall_s / 2 for wall_s in rank.step_s]
        assert rank.cpu_s == pytest.approx(halves, abs=5e-6)


def test_the_control_is_timed_before_the_steps_and_after_them(launcher, request_of):
    outcome = launcher.launch(request_of("paced:build", {}, steps=8, warmup=2))

    for rank in outcome.ranks:
        count = len(rank.control_s)
        before, after = rank.control_s[: count // 2], rank.control_s[count // 2 :]
        assert len(before) == len(after) >= 4
        # The workload's clock, which stands still but for its readings, was not yet set before.
        assert set(map(_rounded, after)) == {_rounded(1e-6)}
        assert not set(map(_rounded, after)) & set(map(_rounded, before))


def _rounded(seconds):
    return round(seconds, 8)
