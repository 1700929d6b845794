"""An acknowledgement of an exact metric covers one value, and no other."""

from __future__ import annotations

import pytest

from ddp_perf.session.gate.exact import acknowledged_as_measured
from ddp_perf.session.gate.judge_again import judge_again
from tests.builders import (
    LOSSES,
    make_acknowledgement,
    make_baseline,
    make_case,
    make_case_baseline,
    make_measurement,
    make_result,
    make_structure,
)

CASE = make_case()
WIDER, WIDEST = make_structure(parameters=2000), make_structure(parameters=3000)
HALF = {step: loss / 2 for step, loss in LOSSES.items()}


def judged(metric, given=(), **rank):
    """Return the finding on a session whose ranks have these figures."""
    baseline = make_baseline({CASE.id: make_case_baseline(CASE)}, acknowledged=tuple(given))
    result = make_result([make_measurement(CASE, (0.01, 0.0101), **rank)])
    result = judge_again(result, baseline, baseline_path="baseline")
    return result, result.finding(CASE.id, metric)


def acknowledged(metric, **rank):
    result, _ = judged(metric, **rank)
    return acknowledged_as_measured(make_acknowledgement(CASE, metric=metric), result)


@pytest.mark.parametrize(
    ("metric", "known", "now", "state"),
    [
        ("structure", {"structure": WIDER}, {"structure": WIDER}, "expected"),
        ("structure", {"structure": WIDER}, {"structure": WIDEST}, "grown"),
        ("structure", {"structure": WIDER}, {"structure": WIDER, "flops": 9}, "grown"),
        ("loss", {"losses": HALF}, {"losses": HALF}, "expected"),
        ("loss", {"losses": HALF}, {"losses": {s: 2 * x for s, x in LOSSES.items()}}, "grown"),
        ("loss", {"losses": HALF}, {"losses": dict.fromkeys(LOSSES)}, "grown"),
    ],
)
def test_only_what_was_acknowledged_is_expected(metric, known, now, state):
    given = acknowledged(metric, **known)

    _, finding = judged(metric, [given], **now)

    assert finding.known.state == state


@pytest.mark.parametrize("metric", ["structure", "loss"])
def test_an_older_acknowledgement_without_a_value_covers_none(metric):
    given = make_acknowledgement(CASE, metric=metric)

    _, finding = judged(metric, [given], structure=WIDER, losses=HALF)

    assert finding.known.state == "grown"
