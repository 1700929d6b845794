"""The choice of a schedule: the cheapest that reaches the aims, and what is missed."""

from __future__ import annotations

import math
from pathlib import Path

import msgspec
import pytest

from ddp_perf.baselines.thin import INFORMING
from ddp_perf.plan.fleet_file import (
    Aim,
    Aims,
    FleetCase,
    FleetFile,
    FleetNodes,
    MonthlyAlarms,
    StatedNoise,
    read_fleet,
)
from ddp_perf.plan.schedule import MONTH, WEEK, Planner
from ddp_perf.stats.fleet import TOLERANCE_SHARE

NOISE = StatedNoise(launch=0.005, session=0.004, node=0.01, visit=0.004)
CASE = FleetCase(name="mlp", nodes=(1, 2), launch_s=60, metrics=2, noise=NOISE)
FILE = FleetFile(
    fleet=FleetNodes(
        nodes=32, accelerator="h100", gpu_minutes_per_night=1000, price_per_gpu_hour=3
    ),
    cases=(CASE,),
    find=Aims(code=Aim(slower=0.05, nights=3), node=Aim(slower=0.06, nights=14)),
)


def fleet(**changes):
    return msgspec.structs.replace(FILE.fleet, **changes)


def planned(file=FILE, **changes):
    return Planner(msgspec.structs.replace(file, **changes)).plan()


def test_the_aims_are_reached_within_the_budget():
    plan = planned()

    assert plan.missed == ()
    assert plan.sample.reaches
    assert plan.gpu_minutes <= 1000
    assert {found.nodes for found in plan.across} == {2}


def test_no_cheaper_sample_reaches_the_aims():
    find = msgspec.structs.replace(FILE.find, node=Aim(slower=0.045, nights=6))
    planner = Planner(msgspec.structs.replace(FILE, find=find))
    chosen = planner.plan().sample

    costs = {one: planner.cost_of_sample(one[0], one[2]) for one in planner._samples()}
    cheaper = [one for one, cost in costs.items() if cost < chosen.gpu_minutes - 1e-9]

    assert cheaper
    assert not any(planner.sample(*one).reaches for one in cheaper)


def test_gpu_minutes_are_nodes_times_gpus_times_launches():
    assert Planner(FILE).cost_of_sample(32, 3) == pytest.approx(32 * 8 * 3 * 1.0)


def test_the_cost_is_the_price_of_the_gpu_hours():
    plan = planned()

    assert plan.cost == pytest.approx(3 * plan.gpu_minutes / 60)
    assert planned(fleet=fleet(price_per_gpu_hour=None)).cost is None


def test_two_sessions_of_a_night_share_the_false_alarms_and_the_verdicts_of_each_its_part():
    alarms = MonthlyAlarms(code=0.3, node=0.3)
    each, across = planned(
        cases=(msgspec.structs.replace(CASE, nodes=(1, 2, 4)),), false_alarms_per_month=alarms
    ).sessions

    assert (each.verdicts, across.verdicts) == (2, 2 * 2)
    assert each.alpha == pytest.approx(0.3 / MONTH / 2 / 2)
    assert across.alpha == pytest.approx(0.3 / MONTH / 2 / 4)


def test_a_fleet_without_cases_of_several_nodes_has_one_session_a_night():
    cases = (msgspec.structs.replace(CASE, nodes=(1,)),)
    (each,) = planned(cases=cases).sessions
    assert each.false_alarm_rate == pytest.approx(0.3 / MONTH)


def test_the_nodes_have_the_rate_that_their_session_has_for_the_code():
    few = MonthlyAlarms(code=0.3, node=0.06)
    planner = Planner(msgspec.structs.replace(FILE, false_alarms_per_month=few))
    power = planner.node_power(CASE, 8, 4, 1)

    assert power.rate == planner.sessions[0].false_alarm_rate == pytest.approx(0.06 / MONTH)


def test_a_node_has_the_visits_that_the_baseline_keeps():
    planner = Planner(msgspec.structs.replace(FILE, fleet=fleet(nodes=2048)))

    assert planner.node_power(CASE, 293, 7, 1).visits == INFORMING // 7
    assert planner.node_power(CASE, 69, 30, 1).visits == 0


def test_sessions_that_have_no_node_twice_do_not_separate_what_it_costs_for_good():
    planner = Planner(msgspec.structs.replace(FILE, fleet=fleet(nodes=2048)))

    seldom, often = planner.spread(CASE, 69, 30, 1), planner.spread(CASE, 293, 7, 1)

    assert seldom.visit == 0
    assert seldom.node == pytest.approx(often.node + often.visit)


def test_more_launches_over_several_nodes_do_not_make_nights_alike():
    planner = Planner(FILE)

    three, many = (planner.across(CASE, 2, launches, 1).smallest for launches in (3, 24))

    assert many < three
    assert many > 2 * math.hypot(NOISE.session, NOISE.visit)


def test_a_size_that_does_not_fit_every_night_is_measured_every_week():
    plan = planned(
        cases=(msgspec.structs.replace(CASE, nodes=(1, 16)),),
        fleet=fleet(gpu_minutes_per_night=300),
    )

    assert [found.every for found in plan.across] == [WEEK]
    assert plan.gpu_minutes <= 300
    assert "16 nodes: the aim for the code needs" in plan.missed[0]
    assert plan.missed[0].endswith("measured every week")


def test_a_size_that_does_not_fit_at_all_is_named():
    plan = planned(
        cases=(msgspec.structs.replace(CASE, nodes=(1, 32)),),
        fleet=fleet(gpu_minutes_per_night=60),
    )

    assert plan.across == ()
    assert "not even every week" in " ".join(plan.missed)


def test_a_budget_that_is_too_small_names_what_is_needed():
    plan = planned(fleet=fleet(gpu_minutes_per_night=33), cases=(CASE,), find=_sooner(2))

    assert plan.sample.gpu_minutes <= 33
    assert "both aims need" in plan.missed[0]


def test_a_slow_down_below_the_noise_is_never_found():
    plan = planned(find=msgspec.structs.replace(FILE.find, code=Aim(slower=0.005, nights=3)))

    assert "no sample reaches both aims" in plan.missed[0]


def test_a_node_is_slow_by_the_share_of_the_tolerance_that_the_gate_takes():
    found = planned(fleet=fleet(nodes=8)).sample
    power = Planner(FILE).node_power(CASE, found.nodes, found.every, found.launches)

    assert power.tolerance == TOLERANCE_SHARE * CASE.tolerance


def test_a_larger_fleet_needs_more_gpu_minutes():
    large = fleet(nodes=128, gpu_minutes_per_night=1e6)

    assert planned(fleet=large).sample.gpu_minutes > planned().sample.gpu_minutes


def test_the_shipped_fleets_are_256_and_16384_gpus():
    fleets = Path(__file__).parents[3] / "docs" / "fleets"

    assert read_fleet(fleets / "256-gpus.yaml").fleet.gpus == 256
    assert read_fleet(fleets / "16384-gpus.yaml").fleet.gpus == 16384


def _sooner(nights):
    return msgspec.structs.replace(FILE.find, node=Aim(slower=0.06, nights=nights))
