"""The lines about the audits of a gate."""

from __future__ import annotations

import pytest

from ddp_perf.core.verdict import Outcome
from ddp_perf.history.text import audit_lines, audit_sentence
from tests.audits import make_audit

KEY = "audits of the gate on cpu-some-2c-host"


def test_without_audits_there_is_no_line():
    assert audit_lines([]) == []


def test_each_size_has_the_share_that_was_found_with_its_interval_and_the_tolerances():
    audits = [
        make_audit(0.012, outcome=Outcome.PASS),
        make_audit(0.04, tolerance=0.02),
        make_audit(0.04, tolerance=0.05),
        make_audit(0.10),
        make_audit(0.0),
        make_audit(0.0),
    ]

    assert audit_lines(audits) == [
        f"{KEY}: of the last 1 hidden slow-down of 1 to 3 %, 0 were found (95 % interval 0 to"
        " 98 %); their tolerance is 2 %, and 1 of them is below it",
        f"{KEY}: of the last 2 hidden slow-downs of 3 to 5 %, 2 were found (95 % interval 16 to"
        " 100 %); their tolerance is 2 to 5 %, and 1 of them is below it",
        f"{KEY}: of the last 1 hidden slow-down of 5 to 10 %, 1 was found (95 % interval 3 to"
        " 100 %); their tolerance is 2 %, and 0 of them are below it",
        f"{KEY}: of the last 2 hidden nothings, 0 were called slower (95 % interval 0 to 84 %)",
    ]


@pytest.mark.parametrize(
    ("size", "sizes"), [(0.01, "1 to 3"), (0.03, "3 to 5"), (0.05, "5 to 10"), (0.1, "5 to 10")]
)
def test_a_size_on_a_border_is_counted_once(size, sizes):
    (line,) = audit_lines([make_audit(size)])

    assert f"of {sizes} %" in line


def test_only_the_last_thirty_audits_of_a_size_count():
    missed = [make_audit(0.04, outcome=Outcome.UNDECIDED)] * 2
    (line,) = audit_lines([*missed, *[make_audit(0.04)] * 29])

    assert "of the last 30 hidden slow-downs of 3 to 5 %, 29 were found" in line


def test_each_accelerator_has_lines_of_its_own():
    first, second = audit_lines([make_audit(0.04), make_audit(0.04, accelerator="h200")])

    assert first.startswith(KEY)
    assert second.startswith("audits of the gate on h200: of the last 1 ")


def test_only_a_regression_is_found():
    (line,) = audit_lines([make_audit(0.0, outcome=Outcome.SUSPECT)])

    assert "0 were called slower" in line


def test_an_audit_states_what_it_hid_and_what_the_gate_called_it():
    slowed, nothing = make_audit(0.034, stage="pairs"), make_audit(0.0, ratio=None, interval=None)

    assert audit_sentence(slowed) == (
        "audit of the gate: mlp-ddp-fp32-ws2-b64 was slowed by 3.4 % in secret: REGRESSION, +3.4 %"
        " (+2.9 to +3.9 %), by pairs of launches, in 12 s (seed 42)"
    )
    assert audit_sentence(nothing) == (
        "audit of the gate: mlp-ddp-fp32-ws2-b64 was not slowed: PASS, by stored"
        " sessions, in 12 s (seed 42)"
    )
