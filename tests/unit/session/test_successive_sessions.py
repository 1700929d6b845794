"""Sessions day after day: each is judged by the stored ones, and then stored for the next."""

from __future__ import annotations

import datetime

import msgspec
import numpy as np
import pytest

from ddp_perf.baselines.save import merge
from ddp_perf.core.case import Tolerances
from ddp_perf.core.verdict import Outcome
from ddp_perf.session.gate.judge_again import judge_again
from ddp_perf.session.store_baseline import append, new_sessions
from tests.builders import make_baseline, make_case, make_measurement, make_result

CASE = make_case(tolerances=Tolerances(step_time=0.02, tail=None, peak_memory=None))
START = datetime.datetime(2026, 1, 1, 3, tzinfo=datetime.timezone.utc)
RED, GREEN = Outcome.REGRESSION, Outcome.PASS
SEEDS = range(20)


def verdict_of(result):
    return result.finding(CASE.id, "step_time").verdict


class Gate:
    """One case of a machine whose sessions and launches differ by half a per cent."""

    session = launch = 0.005

    def __init__(self, seed):
        self.random = np.random.default_rng(seed)
        self.hours = 0.0
        self.baseline = make_baseline()

    def measured(self, factor=1.0):
        """Return a session that is ``factor`` times as slow, not judged yet."""
        noise = self.random.normal(0, self.session) + self.random.normal(0, self.launch, 5)
        return self.of(0.01 * factor * np.exp(noise))

    def spread(self, factor=1.0, *, launches):
        """Return a session that is ``factor`` times as slow; its launches span so much."""
        return self.of(0.01 * factor * (1 + launches * np.array([0.0, -0.5, 0.5, -0.25, 0.25])))

    def of(self, step_s, **rank):
        measurement = make_measurement(CASE, list(step_s), **rank)
        return make_result([measurement], date=self.date, alpha=0.0005)

    @property
    def date(self):
        return (START + datetime.timedelta(hours=self.hours)).isoformat()

    def judged(self, result):
        return judge_again(result, self.baseline, baseline_path="baselines/x.json")

    def store(self, result, *, accept=False):
        if accept:
            sessions = new_sessions(result)
            self.baseline = merge(self.baseline, sessions, mode="accept", reason="meant")
        else:
            self.baseline, result = append(result, self.baseline)
            assert CASE.id in result.saved
        self.hours += 24

    def __call__(self, factor=1.0, *, accept=False):
        """Measure, judge and store a session, and return its verdict on the step time."""
        return self.next(self.measured(factor), accept=accept)

    def next(self, result, *, accept=False):
        """Judge and store a session as that of this day, and return its verdict."""
        result = self.judged(msgspec.structs.replace(result, date=self.date))
        self.store(result, accept=accept)
        return verdict_of(result)

    def days(self, count, factor=1.0):
        return [self(factor).outcome for _ in range(count)]

    def informing(self):
        return len(self.baseline.cases[CASE.id].history("step_time").informing)

    def least(self, outcome):
        """Return a judged session with the outcome: as little slower as that takes."""
        noise = self.random.normal(0, self.launch, 5)
        tried = (
            self.judged(self.of(0.01 * slower * np.exp(noise)))
            for slower in np.arange(1.0, 1.2, 0.001)
        )
        return next(one for one in tried if verdict_of(one).outcome is outcome)


def gates():
    """Yield machines with eight ordinary sessions."""
    for seed in SEEDS:
        gate = Gate(seed)
        gate.days(8)
        yield gate


def share(outcome, outcomes):
    return np.mean([[one is outcome for one in row] for row in outcomes])


@pytest.mark.parametrize(
    ("factor", "least"), [(1.05, 0.95), pytest.param(1.10, 1.0, marks=pytest.mark.slow)]
)
def test_a_slow_down_stays_red_for_weeks_and_is_green_once_it_is_mended(factor, least):
    slow, mended = [], []
    for gate in gates():
        slow.append(gate.days(15, factor))
        mended.append(gate.days(1))

    assert share(RED, slow) >= least
    assert all(row[-1] is RED for row in slow)
    assert share(GREEN, mended) >= 0.9
    assert share(RED, mended) == 0


@pytest.mark.slow
def test_a_slow_down_from_the_third_session_on_is_green_once_mended_and_red_if_it_returns():
    slow, mended, again = [], [], []
    for seed in SEEDS:
        gate = Gate(seed)
        gate.days(2)
        slow.append(gate.days(18, 1.10))
        mended.append(gate.days(1))
        again.append(gate.days(5, 1.10))

    assert all(row[-1] is RED for row in slow)
    assert share(GREEN, mended) >= 0.9
    assert share(RED, mended) == 0
    assert share(RED, again) == 1


@pytest.mark.slow
def test_a_false_alarm_of_one_session_does_not_stay():
    """It is as little slower as a REGRESSION takes."""
    after = []
    for gate in gates():
        gate.store(gate.least(RED))
        after.append(gate.days(3))

    assert share(RED, after) <= 0.05
    assert share(RED, [days[2:] for days in after]) == 0
    assert share(GREEN, after) >= 0.9


def test_an_undecided_session_waits_while_a_baseline_forms_and_not_after_an_accepted_change():
    fresh, known = Gate(0), Gate(0)
    fresh.days(2)
    known.days(8)
    known(accept=True)

    waiting, undecided = (gate.least(Outcome.UNDECIDED) for gate in (fresh, known))

    assert waiting.finding(CASE.id, "step_time").sessions == 2
    assert undecided.finding(CASE.id, "step_time").sessions == 1
    assert (waiting.undecided(), undecided.undecided()) == ([], [CASE.id])


class FollowingGate(Gate):
    """A machine that moved by some per cent, its control with it, and whose control moves alone."""

    moves = (1.0, 1.03, 0.96, 1.02, 0.98, 1.04, 0.97, 1.01)
    moved_alone = 1.0

    def together(self):
        for move in self.moves:
            yield self.next(self.following(move, move)).outcome

    def alone(self, days):
        for _ in range(days):
            session = np.exp(self.random.normal(0, self.session))
            yield self.next(self.following(session, session * self.moved_alone)).outcome

    def following(self, move, control):
        step_s = 0.01 * move * np.exp(self.random.normal(0, self.launch, 5))
        return self.of(step_s, control_s=(0.002 * control,) * 8)

    def store(self, result, *, accept=False):
        if verdict_of(result).outcome is Outcome.INVALID:
            self.hours += 24  # it is refused
        else:
            super().store(result, accept=accept)


@pytest.mark.slow
@pytest.mark.parametrize("moved", [0.8, 0.9, 0.94])
def test_a_control_that_moved_alone_for_eight_days_makes_no_case_red(moved):
    outcomes, after = [], []
    for seed in SEEDS:
        gate = FollowingGate(seed)
        assert RED not in set(gate.together())
        gate.moved_alone = moved
        outcomes.append(list(gate.alone(8)))
        gate.moved_alone = 1.0
        after.append(list(gate.alone(1)))

    assert share(RED, outcomes) == share(Outcome.SUSPECT, outcomes) == 0
    assert share(RED, after) == 0


@pytest.mark.slow
def test_three_slow_sessions_do_not_keep_a_case_from_passing_again():
    slow, mended = [], []
    for gate in gates():
        slow.append(gate.days(3, 1.10))
        mended.append(gate.days(8))

    assert share(RED, slow) == 1
    assert share(GREEN, mended) >= 0.9


def test_red_sessions_leave_no_trace_in_the_verdict_on_a_mended_case():
    gate, untouched = Gate(3), Gate(3)
    gate.days(8), untouched.days(8)
    state = gate.random.bit_generator.state
    gate.days(10, 1.10)
    gate.random.bit_generator.state = state

    assert gate() == untouched()


@pytest.mark.parametrize("seed", range(4, 10))
def test_a_red_session_followed_by_undecided_ones_stays_red_until_one_decides(seed):
    gate = Gate(seed)
    gate.days(8)
    assert gate(1.06).outcome is RED
    undecided = gate.spread(1.03, launches=0.08)

    for _ in range(3):
        assert gate.next(undecided).outcome is RED

    assert gate.next(gate.spread(launches=0.01)).outcome is GREEN
    assert gate.next(undecided).outcome.is_open


def test_slow_launches_of_a_red_session_do_not_excuse_those_of_the_next_ones():
    """Three clean sessions; then two launches of five are slow for good."""
    clean, slow = [1.0, 1.002, 0.998, 1.001, 0.999], [1.4, 1.402, 0.998, 1.001, 0.999]
    gate = Gate(0)
    outcomes = [
        gate.next(gate.of(0.01 * np.array(factors))).outcome for factors in [clean] * 3 + [slow] * 9
    ]

    assert RED in outcomes
    assert GREEN not in outcomes[outcomes.index(RED) :]


@pytest.mark.parametrize("seed", range(4, 9))
def test_an_undecided_session_that_rules_out_the_old_slow_down_is_not_red(seed):
    gate = Gate(seed)
    gate.days(8)
    assert gate(1.3).outcome is RED

    verdict = gate.next(gate.spread(launches=0.08))

    assert verdict.outcome is Outcome.UNDECIDED
    assert verdict.interval[1] < 1.3


def test_a_suspect_that_is_not_confirmed_informs_again():
    gate = Gate(2)
    gate.days(8)
    before = gate.informing()

    gate.store(gate.least(Outcome.SUSPECT))
    assert gate.informing() == before

    assert gate().outcome is GREEN
    assert gate.informing() == before + 2


def test_suspect_sessions_in_a_row_are_red_and_do_not_inform():
    gate = Gate(2)
    gate.days(8)
    before = gate.informing()

    gate.store(gate.least(Outcome.SUSPECT))
    gate.store(gate.least(Outcome.SUSPECT))
    third = gate(1.10)  # the run was no chance

    assert third.outcome is RED
    assert gate.informing() == before
    assert gate().outcome is GREEN
    assert gate.informing() == before + 1


def test_four_runs_in_an_hour_confirm_no_suspect_and_the_same_on_four_days_do():
    confirmed = {}
    for hours in (0.25, 24.0):
        gate = Gate(2)
        gate.days(8)
        first = gate.least(Outcome.SUSPECT)
        confirmed[hours] = []
        for _ in range(4):
            confirmed[hours].append(gate.next(first).outcome)
            gate.hours += hours - 24

    assert confirmed[0.25] == [Outcome.SUSPECT] * 4
    assert confirmed[24.0] == [Outcome.SUSPECT, Outcome.SUSPECT, RED, RED]


def test_four_runs_in_an_hour_inform_as_one_session():
    gate = Gate(4)
    gate.days(4)
    before = gate.informing()

    for _ in range(4):
        gate()
        gate.hours += 0.25 - 24

    assert gate.informing() == before + 1
    assert len(gate.baseline.cases[CASE.id].sessions) == before + 4


@pytest.mark.slow
def test_accepting_a_slow_down_begins_a_level_that_is_gated_at_once():
    rows = []
    for gate in gates():
        gate.days(2, 1.10)
        gate(1.10, accept=True)
        usual = gate.days(3, 1.10)
        slower = gate.days(3, 1.21)
        back = gate.days(1, 1.10)
        rows.append((usual, slower, back))
        found = gate.baseline.cases[CASE.id].history("step_time")
        assert found.in_force == 1
        assert found.levels[:9] == (*[0] * 8, 1)  # the two red sessions inform nothing

    usual, slower, back = zip(*rows, strict=True)
    assert share(GREEN, usual) >= 0.9
    assert share(RED, slower) == 1
    assert share(GREEN, back) >= 0.9


def test_after_a_slow_down_was_accepted_its_absence_is_an_improvement():
    for gate in gates():
        gate(1.10, accept=True)

        verdict = gate()

        assert verdict.outcome is Outcome.IMPROVEMENT
        assert verdict.ratio == pytest.approx(1 / 1.10, rel=0.05)


def formed_slower(seed, after):
    """Return the verdicts on 15 sessions that are 10 % slower than the ``after`` first ones."""
    gate = Gate(seed)
    gate.days(after)
    return [gate(1.10) for _ in range(15)]


@pytest.mark.parametrize(
    "after",
    [1, *(pytest.param(after, marks=pytest.mark.slow) for after in (2, 3, 4))],
)
def test_a_slow_down_while_the_reference_forms_is_red_at_last_and_stays_red(after):
    """It begins with the second to the fifth session."""
    for seed in SEEDS:
        outcomes = [verdict.outcome for verdict in formed_slower(seed, after)]

        assert RED in outcomes[:9]
        assert set(outcomes[outcomes.index(RED) :]) == {RED}


@pytest.mark.slow
@pytest.mark.parametrize("after", [1, 2])
def test_the_reason_names_where_the_reference_moved_while_it_formed(after):
    for seed in SEEDS:
        first = next(v for v in formed_slower(seed, after) if v.outcome is RED)

        assert f" after session {after}, and the faster" in first.reason


@pytest.mark.slow
def test_an_improvement_that_stays_is_one_every_day_and_moves_no_level():
    for gate in gates():
        level = gate.baseline.cases[CASE.id].level("step_time")

        assert set(gate.days(10, 0.9)) == {Outcome.IMPROVEMENT}

        assert gate.baseline.cases[CASE.id].level("step_time") == level


@pytest.mark.slow
def test_unchanged_code_is_never_red_over_two_months():
    """5 machines × 60 days at one false alarm in 2000 verdicts: at most one may be red."""
    outcomes = [outcome for seed in range(5) for outcome in Gate(seed).days(60)]

    assert outcomes.count(RED) <= 1
    assert np.mean([one is GREEN for one in outcomes[10:]]) >= 0.9
