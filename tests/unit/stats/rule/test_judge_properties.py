"""Properties of the verdict on every machine, whatever its noise."""

import copy
import math

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ddp_perf.core.verdict import Outcome
from ddp_perf.stats.rule.comparison import launch_levels, launch_medians
from ddp_perf.stats.rule.levels import levels_of
from tests.judging import judge
from tests.strategies import FACTORS, SLOWER, comparisons
from tests.unit.stats.rule.machine import scaled

GOOD = (Outcome.PASS, Outcome.IMPROVEMENT)
few = settings(max_examples=60)


def has_slow_launches(arguments):
    """Return whether any launch is in the slow mode, of the session or of the baseline."""
    sessions = [*arguments["baseline"], arguments["current"]]
    levels = levels_of(list(map(launch_levels, sessions)), arguments["tolerance"])
    return bool(levels.slow_launches.any())


def inverse(arguments):
    """Return the arguments with the figure of each launch, and of its control, inverted."""

    def inverted(session, figures):
        pairs = zip(session, figures(session), strict=True)
        return [[value / figure**2 for value in launch] for launch, figure in pairs]

    found = arguments | {
        "current": inverted(arguments["current"], launch_levels),
        "baseline": [inverted(session, launch_levels) for session in arguments["baseline"]],
    }
    if "control" in arguments:
        found["control"] = inverted(arguments["control"], launch_medians)
        found["baseline_control"] = [
            inverted(session, launch_medians) for session in arguments["baseline_control"]
        ]
    return found


@few
@given(comparisons(), FACTORS)
def test_scaling_all_values_does_not_change_the_verdict(arguments, factor):
    verdict = judge(**arguments)
    arguments["current"] = scaled(arguments["current"], factor)
    arguments["baseline"] = [scaled(session, factor) for session in arguments["baseline"]]
    again = judge(**arguments)
    assert again.outcome is verdict.outcome
    assert math.isclose(again.ratio, verdict.ratio, rel_tol=1e-9)


@few
@given(comparisons(), st.randoms(use_true_random=False))
def test_order_of_launches_and_values_does_not_change_the_verdict(arguments, random):
    verdict = judge(**arguments)
    shuffled = copy.deepcopy(arguments)
    for session in (shuffled["current"], *shuffled["baseline"]):
        random.shuffle(session)
        for launch in session:
            random.shuffle(launch)
    again = judge(**shuffled)
    assert again.outcome is verdict.outcome
    assert math.isclose(again.ratio, verdict.ratio, rel_tol=1e-9)


@few
@given(comparisons(), SLOWER)
def test_slower_never_turns_a_regression_into_good_news(arguments, factor):
    verdict = judge(**arguments)
    arguments["current"] = scaled(arguments["current"], factor)
    slower = judge(**arguments)
    if verdict.outcome in (Outcome.REGRESSION, Outcome.SUSPECT):
        assert slower.outcome not in GOOD
    if verdict.outcome not in GOOD:
        assert slower.outcome is not Outcome.IMPROVEMENT
    assert math.isclose(slower.ratio, verdict.ratio * factor, rel_tol=1e-9) or (
        has_slow_launches(arguments)
    )


@few
@given(comparisons())
def test_faster_by_the_same_factor_turns_a_regression_into_an_improvement(arguments):
    arguments.pop("control", None)  # its part of the difference would not be mirrored
    slower = judge(**arguments).minimum_detectable
    arguments["current"] = scaled(arguments["current"], 1 + slower)
    verdict = judge(**arguments)
    assume(verdict.outcome is Outcome.REGRESSION and not has_slow_launches(arguments))
    assume(not verdict.off_level)  # the faster side of the reference is another one then
    arguments["current"] = scaled(arguments["current"], verdict.ratio**-2 * (1 - 1e-9))
    mirrored = judge(**arguments)
    assert mirrored.outcome is Outcome.IMPROVEMENT
    assert math.isclose(mirrored.ratio, 1 / verdict.ratio, rel_tol=1e-6)


@few
@given(comparisons())
def test_inverse_times_turn_a_regression_into_an_improvement(arguments):
    """The control is inverted too: the rule also asks how the case moved with its part."""
    slower = judge(**arguments).minimum_detectable
    arguments["current"] = scaled(arguments["current"], (1 + slower) * (1 + 1e-9))
    verdict = judge(**arguments)
    assume(verdict.outcome is Outcome.REGRESSION and not has_slow_launches(arguments))
    mirrored = inverse(arguments)
    assume(not has_slow_launches(mirrored))
    assume(not verdict.off_level)  # the faster side of the reference is another one then
    found = judge(**mirrored)
    assert found.outcome is Outcome.IMPROVEMENT
    assert math.isclose(found.ratio, 1 / verdict.ratio, rel_tol=1e-6)


@few
@given(comparisons())
def test_the_interval_contains_the_ratio_and_all_figures_are_finite(arguments):
    verdict = judge(**arguments)
    by_share = "without slow launches" in verdict.reason
    assert (verdict.interval is None) is by_share
    low, high = verdict.interval or (verdict.ratio, verdict.ratio)
    assert 0 < low <= verdict.ratio <= high < math.inf
    assert arguments["tolerance"] * (1 - 1e-9) <= verdict.minimum_detectable < math.inf
    by_move = "as slow as later stored sessions" in verdict.reason
    if verdict.outcome is Outcome.SUSPECT or (
        verdict.outcome is Outcome.REGRESSION and not by_move
    ):
        assert verdict.ratio >= (1 + arguments["tolerance"]) * (1 - 1e-9)
    if verdict.outcome is Outcome.PASS:
        assert high < 1 + 2 * arguments["tolerance"]
