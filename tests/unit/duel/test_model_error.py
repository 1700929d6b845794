"""The error of the links' model, in the intervals of an emulated case alone."""

from __future__ import annotations

from ddp_perf.duel.case_run import plan_case
from ddp_perf.duel.values import SideCase
from ddp_perf.stats.model_error import MODEL_ERROR, ModelError
from ddp_perf.stats.summary import summarise_all
from tests.builders import make_cases, make_launch


def test_times_that_a_model_gave_have_its_error():
    measured, emulated = make_cases(world_sizes=[1], emulated=[8], network="intra=1GB/s")
    plans = {
        case.id: plan_case(
            SideCase(a=case, b=case),
            summarise_all(
                [make_launch(case, number) for number in range(6)], samples_per_step=64, singles=[]
            ),
            most=24,
            rate=0.01,
            tolerance=None,
            with_single=True,
        ).plans
        for case in (measured, emulated)
    }

    assert {plan.model_error for plan in plans[measured.id].values()} == {ModelError()}
    errors = {name: plan.model_error for name, plan in plans[emulated.id].items()}
    assert errors["step_time"] == errors["efficiency"] == MODEL_ERROR
    assert errors["cpu_time"] == ModelError()  # the rank's own
