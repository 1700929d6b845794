"""Looks are planned before anything is measured, and taken only if they can decide."""

from __future__ import annotations

import re

import numpy as np
import pytest

from ddp_perf.core.verdict import Outcome, Verdict
from ddp_perf.stats.rule.looks import next_look, plan_looks
from tests.judging import judge


@pytest.mark.parametrize(
    ("affordable", "looks"),
    [(0, (5,)), (9, (5,)), (10, (5, 10)), (19, (5, 19)), (20, (5, 20)), (999, (5, 20))],
)
def test_a_second_look_has_two_to_four_times_the_launches_as_affordable(affordable, looks):
    assert plan_looks(5, affordable) == looks


def verdict(outcome=Outcome.UNDECIDED, more_launches=None):
    return Verdict(outcome=outcome, reason="", more_launches=more_launches)


def test_an_undecided_verdict_has_a_next_look_if_launches_can_decide_it():
    looks = (5, 10, 20)

    assert next_look(verdict(more_launches=1), 5, looks) == 10
    assert next_look(verdict(more_launches=15), 5, looks) == 10
    assert next_look(verdict(more_launches=10), 10, looks) == 20
    assert next_look(verdict(Outcome.SUSPECT, more_launches=3), 5, looks) == 10


@pytest.mark.parametrize(
    ("open_or_not", "launches"),
    [
        (verdict(Outcome.PASS, more_launches=1), 5),
        (verdict(Outcome.REGRESSION, more_launches=1), 5),
        (verdict(Outcome.NO_BASELINE), 5),
        (verdict(more_launches=None), 5),  # sessions are what is missing
        (verdict(more_launches=16), 5),  # more than the budget has room for
        (verdict(more_launches=1), 20),
    ],
)
def test_there_is_no_next_look_if_decided_or_undecidable(open_or_not, launches):
    assert next_look(open_or_not, launches, (5, 10, 20)) is None


class TestJudgeWithLooks:
    """The same figures are judged at one look and at several."""

    @staticmethod
    def judge(slow_down, looks=(), launches=5, sd=0.03, seed=3):
        random = np.random.default_rng(seed)
        sessions = np.exp(random.normal(0, 0.002, (9, 1)) + random.normal(0, sd, (9, 20)))
        return judge(
            (slow_down * sessions[-1, :launches, None]).tolist(),
            sessions[:-1, :, None].tolist(),
            tolerance=0.02,
            alpha=0.001,
            looks=looks,
        )

    def test_a_single_look_gives_the_plain_verdict(self):
        assert self.judge(1.05, looks=(5,)) == self.judge(1.05)

    def test_each_look_is_stricter_than_one_alone(self):
        alone = self.judge(1.0)
        for looks in ((5, 10), (5, 10, 20)):
            assert self.judge(1.0, looks).minimum_detectable > alone.minimum_detectable

    def test_a_bound_holds_over_all_looks(self):
        alone, first = self.judge(1.0), self.judge(1.0, (5, 10, 20))

        assert first.interval == alone.interval
        assert alone.upper == pytest.approx(alone.interval[1])
        assert first.upper > alone.upper

    def test_an_undecided_verdict_states_how_many_more_launches_likely_decide_it(self):
        verdict = self.judge(1.03, (5, 10, 20), seed=4)

        assert verdict.outcome in (Outcome.UNDECIDED, Outcome.SUSPECT)
        assert verdict.more_launches
        if verdict.outcome is Outcome.UNDECIDED:
            stated = re.search(r"(\d+) more launches decide it 9 times in 10", verdict.reason)
            assert int(stated[1]) == verdict.likely_launches >= verdict.more_launches

    def test_a_decided_verdict_asks_for_none(self):
        verdict = self.judge(1.5)

        assert verdict.outcome is Outcome.REGRESSION
        assert (verdict.more_launches, verdict.likely_launches) == (None, None)

    @pytest.mark.parametrize("looks", [(0, 5), (5, 5), (10, 5)])
    def test_looks_that_do_not_rise_are_an_error(self, looks):
        with pytest.raises(ValueError, match="must rise"):
            self.judge(1.0, looks)

    def test_equal_launches_do_not_lower_the_level_of_a_look(self):
        """No launch-to-launch spread: a further look would add no information."""
        assert self.judge(1.0, (5, 10), sd=1e-12).outcome is Outcome.PASS
