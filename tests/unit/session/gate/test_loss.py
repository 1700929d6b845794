"""A session is red if its losses are not those of the baseline, higher or lower."""

from __future__ import annotations

import msgspec
import pytest

from ddp_perf.core.case import LOSS_TOLERANCES
from ddp_perf.core.verdict import Outcome
from ddp_perf.session.gate.exact import judge_loss, loss_tolerance, losses_to_store
from tests.builders import LOSSES, make_case, make_cases, make_launch

CASE = make_case()
TOLERANCE = 1e-3


def launch(losses, *, other=None, round_=0):
    """Two ranks, with the same losses unless ``other`` are those of the second one."""
    made = make_launch(CASE, round_, losses=losses)
    if other is None:
        return made
    one, two = made.ranks
    ranks = (one, msgspec.structs.replace(two, losses=other))
    return msgspec.structs.replace(made, ranks=ranks)


def judged(*launches, stored=LOSSES):
    return judge_loss(launches, stored, tolerance=TOLERANCE)


def test_the_same_losses_pass():
    verdict = judged(launch(LOSSES), launch(LOSSES))

    assert verdict.outcome is Outcome.PASS
    assert verdict.reason == "the losses of 4 steps (1, 2, 4, 8) are those of the baseline"


@pytest.mark.parametrize("loss", [0.62, 0.58], ids=["higher", "lower"])
def test_another_loss_is_a_regression_with_both_figures(loss):
    verdict = judged(launch({**LOSSES, "4": loss}))

    assert verdict.outcome is Outcome.REGRESSION
    assert verdict.reason == (
        f"loss of step 4: 0.6 → {loss} (0.025 of the largest loss, tolerance 0.001); the training"
        " does other work, or computes it wrongly"
    )


def test_the_first_and_the_largest_change_are_named():
    verdict = judged(launch({"1": 0.8, "2": 0.71, "4": 0.63, "8": 0.9}))

    assert verdict.reason.startswith(
        "loss of step 2: 0.7 → 0.71, loss of step 8: 0.5 → 0.9 (0.5 of"
    )


def test_one_launch_of_several_is_enough():
    verdict = judged(launch(LOSSES), launch({**LOSSES, "8": 0.6}), launch(LOSSES))

    assert verdict.outcome is Outcome.REGRESSION
    assert "loss of step 8: 0.5 → 0.6 in 1 of 3 launches" in verdict.reason


def test_the_losses_of_the_ranks_are_averaged():
    fewer = {step: loss - 0.1 for step, loss in LOSSES.items()}
    more = {step: loss + 0.1 for step, loss in LOSSES.items()}

    assert judged(launch(fewer, other=more)).outcome is Outcome.PASS
    assert judged(launch(LOSSES, other=more)).outcome is Outcome.REGRESSION


def test_rounding_passes_however_small_the_last_losses_are():
    """A loss near zero may double by rounding: changes are shares of the largest loss."""
    stored = {"1": 4.0, "2": 0.00001}

    assert judged(launch({"1": 4.0002, "2": 0.00002}), stored=stored).outcome is Outcome.PASS


def test_only_steps_that_both_have_are_compared():
    assert judged(launch({**LOSSES, "16": 9.9})).outcome is Outcome.PASS
    assert judged(launch({"1": 0.8})).outcome is Outcome.PASS
    assert judged(launch({"3": 0.8})).outcome is Outcome.NO_BASELINE


def test_an_older_baseline_with_step_64_is_compared_by_the_steps_that_both_have():
    stored = {**LOSSES, "64": 0.1}

    assert judged(launch(LOSSES), stored=stored).outcome is Outcome.PASS
    assert judged(launch({**LOSSES, "8": 0.6}), stored=stored).outcome is Outcome.REGRESSION


@pytest.mark.parametrize("stored", [LOSSES, {}], ids=["stored", "nothing stored"])
def test_a_loss_that_is_not_finite_is_a_regression_whatever_is_stored(stored):
    verdict = judged(launch(LOSSES, other={**LOSSES, "4": None}), stored=stored)

    assert verdict.outcome is Outcome.REGRESSION
    assert verdict.reason == (
        "the loss of step 4 is NaN or infinite on rank 1; fix it, or set tolerances: {loss: null}"
        " in the suite file"
    )


def test_launches_that_differ_from_the_first_step_on_are_no_baseline():
    launches = launch({"1": 0.8, "2": 0.7}), launch({"1": 0.9, "2": 0.7})

    verdict = judged(*launches, stored={})

    assert verdict.outcome is Outcome.INVALID
    assert "the launches of this session differ in the loss of step 1: 0.8 to 0.9" in verdict.reason
    assert "seed what is random" in verdict.reason
    assert "tolerances: {loss: null}" in verdict.reason
    assert losses_to_store(launches, TOLERANCE) == {}


def test_only_steps_before_the_first_difference_are_stored():
    """From there on rounding decides, which the next machine does in another way."""
    nudged = {**LOSSES, "4": 0.6002}  # a quarter of the tolerance
    launches = launch(LOSSES), launch(nudged)

    assert losses_to_store(launches, TOLERANCE) == {"1": 0.8, "2": 0.7}
    assert judged(*launches, stored={}).outcome is Outcome.NO_BASELINE
    assert losses_to_store((launch(LOSSES), launch(LOSSES)), TOLERANCE) == LOSSES


def test_a_case_that_is_not_judged_by_its_loss_stores_none():
    assert losses_to_store((launch(LOSSES),), None) == {}
    assert losses_to_store((launch({**LOSSES, "2": None}),), TOLERANCE) == {}


def test_a_model_of_half_precision_may_differ_by_units_of_its_type():
    """Suites state fp32 for it, too: the precision of a suite is that of autocast."""
    unit = 2.0**-7
    launches = [make_launch(CASE, losses={"1": 1.0}, loss_unit=unit)]
    launches.append(make_launch(CASE, 1, losses={"1": 1.0 - unit}, loss_unit=unit))
    stated = make_cases(tolerances={"loss": 1e-3})[0]

    tolerance = loss_tolerance(CASE, launches)

    assert tolerance == 4 * unit
    assert losses_to_store(launches, tolerance) == {"1": 1.0}
    assert loss_tolerance(stated, launches) == 1e-3
    assert loss_tolerance(CASE, [launch(LOSSES)]) == LOSS_TOLERANCES["fp32"]


def test_the_tolerance_is_that_of_the_precision_unless_the_suite_states_one():
    def tolerance(**suite):
        return make_cases(**suite)[0].loss_tolerance

    assert tolerance() == LOSS_TOLERANCES["fp32"]
    assert tolerance(precision="bf16") == LOSS_TOLERANCES["bf16"]
    assert tolerance(tolerances={"loss": 0.5}) == 0.5
    assert tolerance(tolerances={"loss": None}) is None


def test_losses_that_could_not_be_read_are_no_pass():
    launch = make_launch(make_case(), losses={}, missing={"losses": "RuntimeError: lost"})

    verdict = judge_loss([launch], {"1": 2.0}, tolerance=TOLERANCE)

    assert verdict.outcome is Outcome.INVALID
    assert "in 1 of 1 launches: rank 0: RuntimeError: lost" in verdict.reason
