"""The text of a self-test, and its JSON."""

from __future__ import annotations

import json

import msgspec
import pytest

from ddp_perf.core.case import Tolerances
from ddp_perf.render.terminal import text_of
from ddp_perf.selftest.curve import conclusion_of, selftest_json, selftest_parts
from ddp_perf.selftest.trials import power_curve
from ddp_perf.stats.interval import share_found
from tests.builders import make_case, make_environment
from tests.unit.selftest.selftest_machine import Machine, make_request

LONG = 15 + 35 * 12


def curve_of(machine, count=LONG, **request):
    return power_curve(make_request(**request), machine.launches(count), make_environment())


@pytest.fixture(scope="module")
def quiet():
    return curve_of(Machine())


def one_line(curve):
    return " ".join(text_of(selftest_parts(curve), 100).split())


def test_the_text_of_a_machine_that_can_gate(quiet, file_regression):
    text = text_of(selftest_parts(quiet), 20)

    assert max(map(len, text.splitlines())) <= 80
    file_regression.check(text, extension=".txt", encoding="utf-8")


def test_no_slow_down_is_below_a_small_tolerance():
    tight = make_case(tolerances=Tolerances(step_time=0.01))

    assert "below the tolerance" not in one_line(curve_of(Machine(), case=tight))


@pytest.mark.parametrize(
    ("machine", "count", "begins"),
    [
        pytest.param(
            Machine(launch=0.2),
            LONG,
            "This machine cannot gate: even 20 % is found only 0 of 9 times, 95 % interval 0 to 34"
            " %.",
            id="noisy",
        ),
        pytest.param(
            Machine(launch=0.002, level=lambda number: 1.002**number),
            LONG,
            "This gate raises too many false alarms here: ",
            id="drifting",
        ),
        pytest.param(
            Machine(),
            100,
            "Too short: a slow-down has only 2 trials, and 6 are needed. About 160 more"
            " launches are needed, 5 min; run the command again to continue",
            id="short",
        ),
        pytest.param(
            Machine(),
            0,
            "Too short: a slow-down has only 0 trials, and 6 are needed. About 260 more"
            " launches are needed; run the command again to continue",
            id="nothing",
        ),
    ],
)
def test_a_machine_that_cannot_gate_is_reported_with_the_reason(machine, count, begins):
    curve = curve_of(machine, count)

    assert conclusion_of(curve).startswith(begins)
    assert one_line(curve).endswith(f"{conclusion_of(curve)}.")


def test_a_share_that_may_be_more_or_less_than_half_is_too_short(quiet):
    *smaller, largest = quiet.points
    missed = msgspec.structs.replace(largest, found=share_found(3, 9))
    curve = msgspec.structs.replace(quiet, points=(*smaller, missed))

    assert conclusion_of(curve).startswith(
        "Too short: 20 % is found 3 of 9 times, 95 % interval 7 to 70 %, which may be more or less"
        " than half; run the command again to continue."
    )


def test_false_alarms_name_their_metric():
    curve = curve_of(Machine(launch=0.002, level=lambda number: 1.002**number))

    alarms = curve.false_alarms.share
    assert (
        f"{alarms.found} of {alarms.trials} unslowed sessions raised a REGRESSION"
        f" (step_time {alarms.found})" in one_line(curve)
    )


def test_json_has_every_figure(quiet):
    report = json.loads(selftest_json(quiet))

    assert (report["schema_version"], report["conclusion"]) == (1, "CAN_GATE")
    assert report["sentence"] == conclusion_of(quiet)
    curve = report["curve"]
    assert curve["environment"]["torch"] == "2.13.0"
    (point,) = [point for point in curve["points"] if point["percent"] == 20]
    assert point["found"]["found"] == point["found"]["trials"] == 9
    assert point["found"]["interval"] == pytest.approx([0.6637, 1.0], abs=1e-4)
    assert point["outcomes"] == {"REGRESSION": 9}
    assert report["smallest_found"]["percent"] == 10
