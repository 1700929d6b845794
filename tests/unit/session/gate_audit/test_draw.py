"""The draw of an audit: by a seed that is stated, among the cases that can show a slow-down."""

from __future__ import annotations

import collections

import msgspec
import pytest

from ddp_perf.core.verdict import Outcome
from ddp_perf.session.gate_audit import draw_slow_down
from tests.builders import (
    make_cases,
    make_collectives,
    make_failure,
    make_finding,
    make_measurement,
    make_result,
)

ONE, TWO = make_cases()


def make_night(*cases, number=0, outcome=Outcome.PASS, others=(), **finding):
    """Return the result of a night in which the step of each case has this outcome."""
    return make_result(
        [make_measurement(case, [0.01]) for case in cases],
        date=f"2026-01-01T00:00:{number % 60:02}.{number:06}+00:00",
        findings=(*(make_finding(case, outcome, **finding) for case in cases), *others),
    )


def drawn(nights=400):
    return [draw_slow_down([make_night(ONE, TWO, number=number)]) for number in range(nights)]


def test_the_same_session_draws_the_same_and_another_one_draws_anew():
    first, again, other = (draw_slow_down([make_night(ONE, TWO, number=n)]) for n in (1, 1, 2))

    assert first == again
    assert first.seed != other.seed
    assert 0 <= first.seed < 2**31


def test_half_of_the_nights_hide_nothing_and_the_others_up_to_ten_per_cent():
    sizes = [hidden.size for hidden in drawn()]

    slowed = [size for size in sizes if size]
    assert len(slowed) == pytest.approx(200, abs=50)
    assert min(slowed) >= 0.01
    assert max(slowed) <= 0.10
    thirds = collections.Counter(int((size - 0.01) // 0.03001) for size in slowed)
    assert set(thirds) == {0, 1, 2}
    assert min(thirds.values()) > 40


def test_each_case_is_drawn():
    cases = collections.Counter(hidden.case.id for hidden in drawn())

    assert cases[ONE.id] == pytest.approx(200, abs=50)
    assert cases[ONE.id] + cases[TWO.id] == 400


def test_a_hidden_size_is_injected_as_it_is_stated_and_nothing_injects_nothing():
    for hidden in drawn(40):
        amounts = [injection.amount for injection in hidden.injections]
        assert amounts == ([pytest.approx(hidden.size)] if hidden.size else [])


@pytest.mark.parametrize(
    "outcome",
    [
        *(Outcome.REGRESSION, Outcome.SUSPECT, Outcome.IMPROVEMENT),
        *(Outcome.NO_BASELINE, Outcome.INCOMPARABLE),
    ],
)
def test_a_case_that_is_not_as_before_in_the_session_itself_is_not_drawn(outcome):
    assert draw_slow_down([make_night(TWO, outcome=outcome)]) is None


@pytest.mark.parametrize("outcome", [Outcome.PASS, Outcome.UNDECIDED, Outcome.INVALID])
def test_a_case_that_is_not_decided_is_drawn(outcome):
    assert draw_slow_down([make_night(TWO, outcome=outcome)]).case == TWO


def test_a_case_that_is_red_by_another_metric_is_not_drawn():
    red = make_finding(TWO, Outcome.REGRESSION, metric="structure")

    assert draw_slow_down([make_night(TWO, others=[red])]) is None


@pytest.mark.parametrize("outcome", [Outcome.PASS, Outcome.UNDECIDED])
def test_a_case_that_waits_for_its_first_sessions_is_not_drawn(outcome):
    assert draw_slow_down([make_night(TWO, outcome=outcome, assumed_sd=0.03)]) is None


def test_only_what_trains_on_this_machine_is_drawn():
    elsewhere = msgspec.structs.replace(TWO, launcher="ssh")

    assert draw_slow_down([make_night(*make_collectives(), elsewhere)]) is None


def test_a_case_with_a_failed_launch_is_not_drawn():
    night = make_night(TWO)
    failed = msgspec.structs.replace(
        night.measurements[TWO.id], failures=(make_failure(TWO, round_=1),)
    )

    assert draw_slow_down([msgspec.structs.replace(night, measurements={TWO.id: failed})]) is None


def test_without_a_result_nothing_is_drawn():
    assert draw_slow_down([]) is None
