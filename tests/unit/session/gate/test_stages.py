"""The stages of the gate after the rule: their order, which decides what excuses what."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import msgspec
import pytest

from ddp_perf.core.environment import OutlierHost
from ddp_perf.core.launch import RankConditions
from ddp_perf.core.measurement import Finding, NodeFinding
from ddp_perf.core.verdict import Outcome
from ddp_perf.session.gate.comparability import ClockChange, MachineHistory
from ddp_perf.session.gate.judge_again import CONCLUDING
from ddp_perf.session.gate.judge_suite import COMPARED, JudgingContext, SeenCase
from tests.builders import (
    make_acknowledgement,
    make_baseline,
    make_case,
    make_case_baseline,
    make_environment,
    make_finding,
    make_measurement,
    make_session,
    with_conditions,
)

CASE = make_case()
RED, INVALID = Outcome.REGRESSION, Outcome.INVALID
SLOW = {"ratio": 1.5, "tolerance": 0.05, "value": 1.5, "baseline": 1.0}
TODAY = "2026-01-04T03:04:05+00:00"

# What each stage and the next one leave, in this order and in the other one. Of those after the
# rule: the kinds of their notes on a metric.
NOTED = [
    ("efficiency", ["numerator", "other host"], ["other host"]),
    ("step_time", ["slow nodes"], ["slow nodes"]),  # such nodes are of no pool
    ("step_time", ["slow nodes"], ["other clock", "slow nodes"]),
    ("step_time", ["other clock", "disturbed"], ["disturbed"]),
]
# Of those at the end, and of the first and the third: outcome, sessions without a figure, and
# state of the acknowledgement.
CONCLUDED = [
    (INVALID, (RED, 0, None), (RED, 1, None)),
    (INVALID, (INVALID, 1, None), (INVALID, 1, None)),
    (RED, (RED, 0, "expected"), (Outcome.SUSPECT, 0, None)),
    (Outcome.UNDECIDED, (RED, 0, "expected"), (RED, 0, None)),
]
NAMES = list(CONCLUDING)
STAGES: dict[str, Callable[..., Finding]] = {**COMPARED, **CONCLUDING}


def left(stages, finding, *seen):
    """Return what these stages leave of a finding."""
    for stage in stages:
        finding = STAGES[stage](finding, *seen)
    return finding


def seen(**environment):
    """Return a case to which each stage objects, and whose step is not slower."""
    measurement = make_measurement(CASE, [0.01, 0.01])
    measurement = with_conditions(measurement, *[RankConditions(foreign=0.5)] * 2)
    launches = tuple(msgspec.structs.replace(one, node="n1") for one in measurement.launches)
    measurement = msgspec.structs.replace(measurement, launches=launches)
    stored = msgspec.structs.replace(
        make_session([0.01]), environment=make_environment(host="other", pool="ci")
    )
    baseline = make_baseline({CASE.id: make_case_baseline(CASE, stored)})
    nodes = (NodeFinding(node="n1", sessions=1),)
    return SeenCase(
        measurement=measurement,
        measurements={CASE.id: measurement},
        by_metric={"step_time": make_finding(CASE, Outcome.PASS, ratio=0.99)},
        clocks=[ClockChange("sm_clock_mhz", 1980.0, 1200.0)],
        history=MachineHistory(baseline, make_environment(pool="ci", **environment)),
        outlier=OutlierHost(host="host", pool="ci", ratio=1.5, hosts=3, limit=1.1),
        of_nodes=make_finding(CASE, Outcome.BAD_NODE, metric="nodes", nodes=nodes),
    )


@pytest.mark.parametrize(
    ("stages", "noted"), list(zip(pairwise(COMPARED), NOTED, strict=True)), ids=str
)
def test_a_stage_after_the_rule_sees_what_the_one_before_made_of_it(stages, noted):
    metric, in_order, swapped = noted
    finding = make_finding(CASE, RED, metric=metric, **SLOW)
    case = seen(alike_nodes=2 if in_order == swapped else None)

    both = [left(order, finding, case).notes for order in (stages, reversed(stages))]

    assert [[note.kind.value for note in notes] for notes in both] == [in_order, swapped]


@pytest.mark.parametrize(
    ("stages", "concluded"),
    list(zip([*pairwise(NAMES), (NAMES[0], NAMES[2])], CONCLUDED, strict=True)),
    ids=str,
)
def test_a_stage_at_the_end_sees_what_the_one_before_made_of_it(stages, concluded):
    """The case was red, lacked its step in the next session, is acknowledged, and rotates."""
    outcome, *expected = concluded
    red = msgspec.structs.replace(make_session([0.02], day=2), verdicts={"step_time": RED})
    lacking = msgspec.structs.replace(make_session([0.02], day=3), launches=({"tail": 1.0},))
    stored = make_case_baseline(CASE, make_session([0.01]), red, lacking)
    context = JudgingContext(
        baseline=make_baseline({CASE.id: stored}, acknowledged=(make_acknowledgement(CASE),)),
        baseline_path="baselines/x.json",
        environment=make_environment(),
        alpha=0.01,
        reported={CASE.id},
    )

    both = [
        left(order, make_finding(CASE, outcome), context, TODAY)
        for order in (stages, reversed(stages))
    ]

    assert [
        (one.verdict.outcome, one.unmeasured, one.known and one.known.state) for one in both
    ] == expected
