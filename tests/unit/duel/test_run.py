"""The run of a duel: when it stops, what it launches, and what it keeps."""

from __future__ import annotations

import pytest

from ddp_perf.duel.values import MissingSide, SideCase
from ddp_perf.errors import BudgetError, LaunchError
from tests.builders import make_case, make_cases
from tests.unit.duel.played_sides import (
    EQUIVALENT,
    FASTER,
    SLOWER,
    UNDECIDED,
    Clock,
    PlayedSide,
    outcomes,
    play,
)
from tests.works import make_site

TRAINER = make_site(92, "self._scaler.step(", file="ddp_perf/worker/steps/trainer.py")


@pytest.fixture
def clock(monkeypatch):
    return Clock(monkeypatch)


@pytest.fixture
def case():
    return make_case()


def make_many(number):
    return [make_case(id=f"case{i}") for i in range(number)]


@pytest.mark.parametrize(("slower", "outcome"), [(1.3, SLOWER), (0.7, FASTER), (1.0, EQUIVALENT)])
def test_a_duel_stops_at_the_first_look_that_decides(clock, case, slower, outcome):
    a, b = PlayedSide(clock, 1), PlayedSide(clock, 2, slower=slower, cpu=slower)

    duel = play(clock, a, b, [case])

    assert (duel.outcome, duel.complete) == (outcome, True)
    assert (len(a.asked), len(b.asked)) == (6 + 6, 6)  # calibration and pairs
    assert duel.wall_s == clock.now == 18 < duel.budget_s


def test_a_decided_case_is_not_launched_again_while_another_one_goes_on(clock):
    cases = make_many(2)
    noisy = PlayedSide(clock, 2, slower={"case1": 1.04}, noise=0.03)
    a = PlayedSide(clock, 1, noise=0.03)

    duel = play(clock, a, noisy, [cases[0], cases[1]], budget_s=120, tolerance=0.06)

    pairs = {one.id: len(one.pairs) for one in duel.cases}
    assert min(pairs.values()) < max(pairs.values())
    first = min(pairs, key=pairs.get)
    assert outcomes(duel)[first] is not UNDECIDED
    assert [name for name, _ in noisy.asked].count(first) == pairs[first]


def test_both_sides_have_equal_blocks_in_random_order(clock, case):
    a, b = PlayedSide(clock, 1, noise=0.05), PlayedSide(clock, 2, noise=0.05)

    (found,) = play(clock, a, b, [case], budget_s=100, tolerance=0.01).cases

    blocks = [pair.block for pair in found.pairs]
    assert blocks == list(range(len(blocks)))
    assert a.asked[6:] == b.asked == [(case.id, block) for block in blocks]
    assert {pair.first for pair in found.pairs} == {"A", "B"}


def test_the_budget_is_kept_and_its_pairs_are_judged_at_its_end(clock, case):
    a, b = PlayedSide(clock, 1, noise=0.2), PlayedSide(clock, 2, noise=0.2, launch_s=3.0)

    duel = play(clock, a, b, [case], budget_s=60)

    (found,) = duel.cases
    assert duel.outcome is UNDECIDED
    assert 60 - 4 <= duel.wall_s <= 60
    assert len(found.pairs) == 13  # of 4 s each; before the first one, 2 s were expected
    assert found.metrics[0].verdict.more_pairs is None or found.metrics[0].verdict.more_pairs > 0


def test_no_room_for_the_first_look_is_an_error_that_names_what_would_do(clock):
    a, b = PlayedSide(clock, 1), PlayedSide(clock, 2)

    with pytest.raises(BudgetError) as error:
        play(clock, a, b, make_many(5), budget_s=30)

    assert "raise it to 120s" in str(error.value)  # 5 × 18 s, and a fifth
    assert "or compare fewer cases, such as case0" in str(error.value)
    assert len(a.asked) == 2  # two cases alone take 36 s
    assert not b.asked


def test_spare_cases_without_room_are_left_out_the_least_telling_first(clock):
    a, b = PlayedSide(clock, 1), PlayedSide(clock, 2)

    duel = play(clock, a, b, make_many(4), budget_s=45, spare=["case3", "case0", "case2", "case1"])

    assert [case.id for case in duel.cases] == ["case1", "case2"]  # of 18 s each
    assert [one.case_id for one in duel.left_out] == ["case3", "case0"]
    assert "turned out to have no room" in duel.left_out[0].reason
    assert (duel.outcome, duel.complete) == (EQUIVALENT, True)


def test_the_last_spare_case_goes_on_with_fewer_pairs_than_a_look_has(clock, case):
    a, b = PlayedSide(clock, 1), PlayedSide(clock, 2)

    duel = play(clock, a, b, [case], budget_s=12, spare=[case.id])

    assert len(duel.cases[0].pairs) == 3
    assert duel.complete
    with pytest.raises(BudgetError):
        play(clock, a, b, [case], budget_s=8, spare=[case.id])  # no room for two pairs


def test_the_calibration_shows_what_the_pairs_can_see(clock, case):
    (found,) = play(clock, PlayedSide(clock, 1), PlayedSide(clock, 2), [case]).cases

    estimate = found.power[0]
    assert estimate.launches == len(found.aa) == 6
    assert 0.003 < estimate.spread < 0.05
    assert 0 < estimate.minimum_detectable <= 0.05  # the tolerance: less is EQUIVALENT
    assert estimate.pairs == (180 - 6) // 2


def test_cpu_time_decides_where_wall_time_is_unsteady(clock, case):
    a = PlayedSide(clock, 1, noise=0.2, cpu_noise=0.01)
    b = PlayedSide(clock, 2, noise=0.2, cpu_noise=0.01, slower=1.1, cpu=1.1)

    duel = play(clock, a, b, [case], budget_s=30)

    verdicts = {metric.metric: metric for metric in duel.cases[0].metrics}
    assert duel.outcome is SLOWER
    assert verdicts["cpu_time"].decides
    assert "CPU time decides" in verdicts["cpu_time"].why
    assert not verdicts["step_time"].decides


def test_cpu_time_never_decides_between_other_numbers_of_threads(clock, case):
    cases = SideCase(a=case, b=make_case(env={"OMP_NUM_THREADS": "2"}))
    a = PlayedSide(clock, 1, noise=0.2, cpu_noise=0.01)
    b = PlayedSide(clock, 2, noise=0.2, cpu_noise=0.01, slower=0.6, cpu=1.2)

    duel = play(clock, a, b, [cases])

    verdicts = {metric.metric: metric for metric in duel.cases[0].metrics}
    assert duel.outcome is FASTER
    assert not verdicts["cpu_time"].decides


def test_a_step_that_waits_is_slower_although_cpu_time_was_chosen(clock, case):
    a = PlayedSide(clock, 1, noise=0.1, cpu_noise=0.01)
    b = PlayedSide(clock, 2, noise=0.1, cpu_noise=0.01, slower=3.0)

    duel = play(clock, a, b, [case])

    verdicts = {metric.metric: metric for metric in duel.cases[0].metrics}
    assert duel.outcome is SLOWER
    assert verdicts["step_time"].decides
    assert not verdicts["cpu_time"].decides
    assert verdicts["cpu_time"].verdict.outcome is EQUIVALENT


def test_more_cpu_time_in_a_step_that_takes_as_long_is_not_slower(clock, case):
    b = PlayedSide(clock, 2, cpu=1.5)

    duel = play(clock, PlayedSide(clock, 1), b, [case])

    assert duel.outcome is EQUIVALENT


@pytest.mark.parametrize(("peak", "outcome"), [(1200, SLOWER), (800, EQUIVALENT)])
def test_more_memory_is_red_and_less_memory_is_not_faster(clock, case, peak, outcome):
    duel = play(clock, PlayedSide(clock, 1), PlayedSide(clock, 2, peak=peak), [case])

    assert duel.outcome is outcome


@pytest.mark.parametrize(
    ("slower", "stall_s", "outcome"), [(1.0, 0.2, SLOWER), (0.2, 0.01, FASTER)]
)
def test_stalls_are_red_unless_the_whole_launch_got_shorter(clock, case, slower, stall_s, outcome):
    a = PlayedSide(clock, 1, stall_s=0.01)
    b = PlayedSide(clock, 2, slower=slower, cpu=slower, stall_s=stall_s)

    duel = play(clock, a, b, [case])

    (tail,) = [metric for metric in duel.cases[0].metrics if metric.metric == "tail"]
    assert tail.verdict.ratio > 1.3
    assert duel.outcome is outcome


def test_one_case_of_many_is_slower(clock):
    b = PlayedSide(clock, 2, slower={"case3": 1.2})

    duel = play(clock, PlayedSide(clock, 1), b, make_many(5), budget_s=300)

    assert outcomes(duel) == {f"case{i}": SLOWER if i == 3 else EQUIVALENT for i in range(5)}
    assert duel.outcome is SLOWER


@pytest.mark.parametrize("broken", ["A", "B"])
def test_a_case_that_fails_on_a_side_is_not_launched_again(clock, broken):
    cases = make_many(2)
    a = PlayedSide(clock, 1, fails_at=13 if broken == "A" else None)  # after 12 of the calibration
    b = PlayedSide(clock, 2, fails_at=1 if broken == "B" else None)

    duel = play(clock, a, b, cases)

    (failed,) = [case for case in duel.cases if case.failures]
    (other,) = [case for case in duel.cases if not case.failures]
    assert [failure.side for failure in failed.failures] == [broken]
    assert failed.failures[0].failure.output == "what the rank printed"
    assert [name for name, _ in b.asked].count(failed.id) == 1
    assert failed.outcome is UNDECIDED
    assert other.outcome is EQUIVALENT
    assert duel.broken is (broken == "B")


def test_a_case_that_fails_in_the_calibration_is_not_launched_on_side_b(clock):
    cases = make_many(2)
    b = PlayedSide(clock, 2)

    duel = play(clock, PlayedSide(clock, 1, fails_at=1), b, cases)

    assert {name for name, _ in b.asked} == {"case1"}
    assert outcomes(duel) == {"case0": UNDECIDED, "case1": EQUIVALENT}


def test_an_interrupt_leaves_all_whole_pairs(clock, case):
    updates = []
    b = PlayedSide(clock, 2, interrupt_at=9, noise=0.2)

    with pytest.raises(KeyboardInterrupt):
        play(clock, PlayedSide(clock, 1, noise=0.2), b, [case], updates=updates, tolerance=0.01)

    assert not updates[-1].complete
    assert updates[-1].outcome is UNDECIDED
    assert len(updates[-1].cases[0].pairs) == 8
    assert updates[-1].cases[0].metrics[0].verdict.pairs == 8


def test_a_case_that_a_side_lacks_is_never_a_pass(clock, case):
    missing = [MissingSide(case_id="gone", reason="side B has no such case")]

    duel = play(clock, PlayedSide(clock, 1), PlayedSide(clock, 2), [case], missing=missing)

    assert duel.cases[0].outcome is EQUIVALENT
    assert duel.outcome is UNDECIDED


def test_the_efficiency_is_judged_by_the_one_rank_case_of_the_same_blocks(clock):
    single, several = make_cases()
    b = PlayedSide(clock, 2, slower={several.id: 1.3}, noise=0.005)

    a = PlayedSide(clock, 1, noise=0.005)
    duel = play(clock, a, b, [single, several], false_alarm_rate=0.1)

    (found,) = [case for case in duel.cases if case.id == several.id]
    (efficiency,) = [metric for metric in found.metrics if metric.metric == "efficiency"]
    assert efficiency.verdict.outcome is SLOWER
    assert efficiency.verdict.ratio == pytest.approx(1.3, rel=0.02)
    assert efficiency.decides


def test_a_faster_single_rank_makes_no_case_slower(clock):
    single, several = make_cases()
    b = PlayedSide(clock, 2, slower={single.id: 0.7}, noise=0.005)

    a = PlayedSide(clock, 1, noise=0.005)
    duel = play(clock, a, b, [single, several], false_alarm_rate=0.1)

    assert outcomes(duel) == {single.id: FASTER, several.id: EQUIVALENT}
    (efficiency,) = [one for one in duel.cases[1].metrics if one.metric == "efficiency"]
    assert efficiency.verdict.outcome is SLOWER
    assert not efficiency.decides
    assert "did not grow" in efficiency.why


def test_the_counts_of_both_sides_are_compared_unless_they_were_before(clock, case):
    sides = PlayedSide(clock, 1), PlayedSide(clock, 2, work=3)

    counted = play(clock, *sides, [case]).cases[0]
    uncounted = play(clock, *sides, [case], counts=False).cases[0]

    assert [(change.before, change.after) for change in counted.work] == [(1, 3)]
    assert uncounted.work is None


@pytest.mark.parametrize(("package", "lines"), [("package", ()), ("other", (TRAINER,))])
def test_a_line_of_this_package_is_edited_only_if_the_sides_import_different_ones(
    clock, case, package, lines
):
    a = PlayedSide(clock, 1)
    b = PlayedSide(clock, 2, work=3, site=TRAINER)

    found = play(clock, a, b, [case], package=package).cases[0]

    assert found.lines == lines


def test_slower_cases_are_counted_first_and_whatever_it_takes(clock):
    a = PlayedSide(clock, 1, count_s=100)
    b = PlayedSide(clock, 2, slower={"case2": 1.3, "case3": 1.3}, count_s=100)

    duel = play(clock, a, b, make_many(4), budget_s=400)

    assert list(dict.fromkeys(b.counted)) == ["case2", "case3"]
    assert a.counted == b.counted
    assert [one.work is None for one in duel.cases] == [True, True, False, False]
    assert duel.cases[0].uncounted == "it is not slower, and there was no time for it"


def test_a_budget_is_for_launches_and_counts_take_none_of_it(clock, case):
    a, b = PlayedSide(clock, 1, count_s=50), PlayedSide(clock, 2, count_s=50)

    duel = play(clock, a, b, [case], budget_s=30)

    assert (duel.outcome, duel.complete) == (EQUIVALENT, True)
    assert duel.cases[0].work == ()


def test_a_server_that_does_not_start_for_a_count_costs_no_verdict(clock, case):
    b = PlayedSide(clock, 2, slower=1.3, cannot_count=True)

    duel = play(clock, PlayedSide(clock, 1), b, [case])

    assert (duel.outcome, duel.complete) == (SLOWER, True)
    assert duel.cases[0].uncounted == "side B: no server"
    assert duel.cases[0].metrics


def test_servers_are_renewed_each_three_pairs(clock, case):
    decided = PlayedSide(clock, 1), PlayedSide(clock, 2)
    open_ = PlayedSide(clock, 1, noise=0.2), PlayedSide(clock, 2, noise=0.2)

    play(clock, *decided, [case])
    play(clock, *open_, [case], budget_s=40)  # 17 pairs

    assert [side.ends for side in decided] == [1, 1]
    assert [side.ends for side in open_] == [5, 5]


def test_the_start_of_a_server_is_in_the_time_of_no_launch(clock, case):
    """The first look at two cases takes 36 s, and four servers 80 s."""
    other = make_case(id="other", env={"OMP_NUM_THREADS": "2"})
    sides = [PlayedSide(clock, seed, start_s=20.0) for seed in (1, 2)]

    assert play(clock, *sides, [case, other], budget_s=120).outcome is EQUIVALENT


def test_servers_that_start_slowly_are_not_renewed(clock, case):
    sides = [PlayedSide(clock, seed, noise=0.2, start_s=10.0) for seed in (1, 2)]

    duel = play(clock, *sides, [case])

    assert duel.outcome is UNDECIDED
    assert [side.ends for side in sides] == [0, 0]


def test_a_server_that_does_not_start_again_leaves_what_was_measured(clock, case):
    updates = []
    b = PlayedSide(clock, 2, noise=0.2, cannot_restart=True)

    with pytest.raises(LaunchError):
        play(clock, PlayedSide(clock, 1, noise=0.2), b, [case], updates=updates)

    assert not updates[-1].complete
    assert len(updates[-1].cases[0].pairs) == 3
    assert updates[-1].cases[0].metrics


def test_a_failure_that_outlasts_the_budget_is_reported_as_a_failure(clock):
    a = PlayedSide(clock, 1, fails_at=1, launch_s=60.0)

    duel = play(clock, a, PlayedSide(clock, 2), [make_case()], budget_s=30)

    assert (duel.outcome, duel.complete) == (UNDECIDED, True)
    assert duel.cases[0].failures[0].side == "A"


def test_false_alarms_are_as_rare_as_stated(clock, case):
    found = []
    for seed in range(30):
        a, b = PlayedSide(clock, seed, noise=0.04), PlayedSide(clock, seed + 1000, noise=0.04)
        found.append(play(clock, a, b, [case], counts=False, false_alarm_rate=0.05).outcome)

    # Binomial: 30 duels at 5 % for each of SLOWER and FASTER show more than 8 once in 500 times.
    assert sum(outcome in (SLOWER, FASTER) for outcome in found) <= 8
