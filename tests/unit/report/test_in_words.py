"""The difference of a case from its baseline, in plain words."""

from __future__ import annotations

import pytest

from ddp_perf.core.verdict import Outcome
from ddp_perf.report.rows import in_words
from tests.builders import make_case, make_excuse, make_finding, make_measurement, make_result

CASE = make_case()
RED = Outcome.REGRESSION


def words(*findings):
    return in_words(make_result([make_measurement(CASE, [0.01] * 3)], findings=findings), CASE.id)


def step(outcome, ratio, **changes):
    return make_finding(CASE, outcome, ratio=ratio, **changes)


def structure(flops, outcome=RED):
    return make_finding(CASE, outcome, metric="structure", flops=flops)


def test_a_slow_down_has_its_size_what_the_step_computes_more_and_the_loss():
    found = words(
        step(Outcome.SUSPECT, 1.244),
        structure((800, 1064)),
        make_finding(CASE, RED, metric="loss"),
    )
    assert found == "24 % slower (not yet proven), 33 % more FLOPs, another loss"


@pytest.mark.parametrize(
    ("finding", "expected"),
    [
        pytest.param(step(RED, 1.042), "4.2 % slower", id="proven"),
        pytest.param(step(Outcome.IMPROVEMENT, 0.8), "20 % faster", id="faster"),
        pytest.param(structure((800, 400)), "50 % fewer FLOPs", id="fewer FLOPs"),
        pytest.param(structure(None), "another structure of the step", id="other collectives"),
        pytest.param(
            make_finding(CASE, RED, metric="peak_memory", ratio=1.5),
            "peak memory of a rank 50 % more",
            id="memory",
        ),
    ],
)
def test_a_difference_has_its_size_and_direction(finding, expected):
    assert words(finding) == expected


@pytest.mark.parametrize(
    "finding",
    [
        pytest.param(step(Outcome.PASS, 1.03), id="passed"),
        pytest.param(step(Outcome.NO_BASELINE, None), id="nothing stored"),
        pytest.param(step(Outcome.INVALID, 1.4, notes=make_excuse("steal")), id="disturbed"),
        pytest.param(structure((800, 800), Outcome.PASS), id="the same FLOPs"),
    ],
)
def test_what_shows_no_difference_is_not_put_into_words(finding):
    assert words(finding) is None
