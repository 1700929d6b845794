"""The text of a self-test, and its JSON."""

from __future__ import annotations

import json
import re

import pytest

from ddp_perf.core.case import Tolerances
from ddp_perf.selftest.text import conclusion_of, selftest_json, selftest_text
from ddp_perf.selftest.trials import power_curve
from tests.builders import make_case, make_case_baseline, make_environment, make_session
from tests.unit.selftest.selftest_machine import CASE, Machine, make_request

LONG = 15 + 35 * 12


def curve_of(machine, count=LONG, stored=None, **request):
    return power_curve(make_request(**request), machine.launches(count), make_environment(), stored)


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
    assert rows[20][1:] == ["60", "9 of 9", "66 to 100", "0", "0", "0", "100.0"]
    assert rows[0][0] == "–"
    assert rows[2][2:-1] == ["0 of 9", "0 to 34", "0", "0", "9"]  # it is below the tolerance


@pytest.mark.parametrize("width", [20, 80, 120])
def test_the_text_fits_the_terminal_or_80_columns(quiet, width):
    for line in selftest_text(quiet, width).splitlines():
        assert len(line) <= max(width, 80)
        assert "…" not in line


def test_the_notes_explain_the_table(quiet):
    text = one_line(quiet)

    assert "up to 3 % is below the tolerance of 5 %; the gate is not meant to find it." in text
    assert "0 of 19 unslowed sessions raised a REGRESSION, 95 % interval 0 to 18 %" in text
    assert "the promised rate is 0.3 %" in text
    assert "5 launches, spread of this run (launches differ by 0.4 %" in text
    assert "10 launches, spread of this run" in text
    assert "the points do not include the variance between sessions" in text
    assert "they are not fully independent" in text
    assert "Stored sessions of this case: 0; 3 are needed" in text


def test_stored_sessions_are_reported_with_their_model():
    sessions = [
        make_session([0.02 * level] * 3, day=day) for day, level in enumerate([1, 1.1, 0.9], 1)
    ]
    curve = curve_of(Machine(), stored=make_case_baseline(CASE, *sessions))
    text = one_line(curve)

    assert conclusion_of(curve).endswith(
        "; modelled with the spread of stored sessions, not even a slow-down of 100 % is found 9"
        " times in 10"
    )
    assert (
        "5 launches, spread of the 3 stored sessions (launches differ by 0.0 %, stored sessions by"
        in text
    )
    assert "3 would tell" not in text


def test_no_slow_down_is_below_a_small_tolerance():
    tight = make_case(tolerances=Tolerances(step_time=0.01))

    assert "below the tolerance" not in one_line(curve_of(Machine(), case=tight))


def test_a_machine_that_can_gate_is_reported_with_its_slow_down(quiet):
    sentence = conclusion_of(quiet)

    slow_down = quiet.sees.slow_down.value
    assert sentence == (
        f"On this machine, with 5 launches, this gate sees ≥ {100 * slow_down:.1f} % with 90 %"
        " power at 1 % false alarms per session (10 % injected: found 9 of 9 times, 95 % interval"
        " 66 to 100 %); this does not include the variance between sessions"
    )
    assert one_line(quiet).endswith(f"{sentence}.")


@pytest.mark.parametrize(
    ("machine", "count", "begins"),
    [
        pytest.param(
            Machine(launch=0.2),
            LONG,
            "This machine cannot gate: even 20 % is found only 0 of 9 times.",
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
            "Too short: a slow-down has only 2 trials, and 5 are needed. About 125 more"
            " launches are needed, 4 min; run the command again to continue",
            id="short",
        ),
        pytest.param(
            Machine(),
            0,
            "Too short: a slow-down has only 0 trials, and 5 are needed. About 225 more"
            " launches are needed; run the command again to continue",
            id="nothing",
        ),
    ],
)
def test_a_machine_that_cannot_gate_is_reported_with_the_reason(machine, count, begins):
    curve = curve_of(machine, count)

    assert conclusion_of(curve).startswith(begins)
    assert one_line(curve).endswith(f"{conclusion_of(curve)}.")


def test_false_alarms_name_their_metric():
    curve = curve_of(Machine(launch=0.002, level=lambda number: 1.002**number))

    alarms = curve.false_alarms.share
    assert (
        f"{alarms.found} of {alarms.trials} unslowed sessions raised a REGRESSION"
        f" (step_time {alarms.found})" in one_line(curve)
    )


def test_json_has_every_figure(quiet):
    report = json.loads(selftest_json(quiet))

    assert (report["schema_version"], report["conclusion"]) == (2, "CAN_GATE")
    assert report["sentence"] == conclusion_of(quiet)
    curve = report["curve"]
    assert curve["environment"]["torch"] == "2.13.0"
    (point,) = [point for point in curve["points"] if point["percent"] == 20]
    assert point["found"]["found"] == point["found"]["trials"] == 9
    assert point["found"]["interval"] == pytest.approx([0.6637, 1.0], abs=1e-4)
    assert point["outcomes"] == {"REGRESSION": 9}
    assert [modelled["launches"] for modelled in curve["modelled"]] == [5, 10]
