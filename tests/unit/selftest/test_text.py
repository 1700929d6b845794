"""The text of a self-test, and its JSON."""

from __future__ import annotations

import json
import re

import msgspec
import pytest

from ddp_perf.core.case import Tolerances
from ddp_perf.selftest.curve import conclusion_of, selftest_json, selftest_text
from ddp_perf.selftest.trials import power_curve
from ddp_perf.stats.share import share_found
from tests.builders import make_case, make_environment
from tests.unit.selftest.selftest_machine import Machine, make_request

LONG = 15 + 35 * 12


def curve_of(machine, count=LONG, **request):
    return power_curve(make_request(**request), machine.launches(count), make_environment())


@pytest.fixture(scope="module")
def quiet():
    return curve_of(Machine())


def rows_of(curve):
    """Return the cells of the table by percent."""
    _, table = selftest_text(curve, 100).split("─\n")
    lines = [re.split(r"\s\s+", line.strip()) for line in table.splitlines()[:6]]
    return {int(percent): cells for percent, *cells in lines}


def one_line(curve):
    return " ".join(selftest_text(curve, 100).split())


def test_the_text_begins_with_the_case_and_the_rule(quiet):
    assert one_line(quiet).startswith(
        "mlp-ddp-fp32-ws2-b64 of quick on Some Processor: step time of 435 launches, some of them"
        " slowed on purpose A session is 5 launches, judged against the 8 unslowed sessions"
        " before it; tolerance 5 %, 1 % false alarms per session, 0.1 % for each verdict of the"
        " suite"
    )


def test_every_row_has_launches_trials_interval_and_other_outcomes(quiet):
    rows = rows_of(quiet)

    assert list(rows) == [0, 2, 3, 5, 10, 20]
    came_out, margin = map(float, rows[20][0].split(" ± "))
    assert came_out == pytest.approx(20, abs=margin)
    assert rows[20][1:] == ["60", "9 of 9", "66 to 100", "0", "0", "0"]
    assert rows[0][0] == "–"
    assert rows[2][2:] == ["0 of 9", "0 to 34", "0", "0", "9"]  # it is below the tolerance


@pytest.mark.parametrize("width", [20, 80, 120])
def test_the_text_fits_the_terminal_or_80_columns(quiet, width):
    for line in selftest_text(quiet, width).splitlines():
        assert len(line) <= max(width, 80)
        assert "…" not in line


def test_the_notes_explain_the_table(quiet):
    text = one_line(quiet)

    assert "up to 3 % is below the tolerance of 5 %; the gate is not meant to find it." in text
    assert "0 of 19 unslowed sessions raised a REGRESSION, 95 % interval 0 to 18 %" in text
    assert "the promised rate is 0.4 %, which takes 921 sessions without an alarm to show." in text
    assert (
        'the points do not include the variance between sessions; "min. det." of a pytest session'
        " with three or more stored ones does." in text
    )
    assert "they are not fully independent" in text


def test_no_slow_down_is_below_a_small_tolerance():
    tight = make_case(tolerances=Tolerances(step_time=0.01))

    assert "below the tolerance" not in one_line(curve_of(Machine(), case=tight))


def test_a_machine_that_can_gate_is_reported_with_its_slow_down(quiet):
    sentence = conclusion_of(quiet)

    size, _ = rows_of(quiet)[10][:2]
    assert sentence == (
        f"On this machine, with 5 launches, this gate finds a slow-down of {size} % or more in at"
        " least 66 % of sessions (10 % injected: found 9 of 9 times, 95 % interval 66 to 100 %);"
        " 0 of 19 unslowed sessions raised a REGRESSION (0 to 18 %). This does not include the"
        " variance between sessions"
    )
    assert one_line(quiet).endswith(f"{sentence}.")


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
