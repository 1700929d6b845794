"""The lines about the audits of a gate."""

from __future__ import annotations

import pytest

from ddp_perf.core.verdict import Outcome
from ddp_perf.history.text import audit_lines, audit_sentence
from tests.audits import make_audit

KEY = "audits of the gate on cpu-some-2c-host"


def test_without_audits_there_is_no_line():
    assert audit_lines([]) == []


def test_the_sentences_on_audits(file_regression):
    """The share of each size that was found, and what one audit hid and what it was called."""
    audits = [
        make_audit(0.012, outcome=Outcome.PASS),
        make_audit(0.04, tolerance=0.02),
        make_audit(0.04, tolerance=0.05),
        make_audit(0.10),
        make_audit(0.0),
        make_audit(0.0),
    ]
    slowed, nothing = make_audit(0.034, stage="pairs"), make_audit(0.0, ratio=None, interval=None)

    lines = [*audit_lines(audits), audit_sentence(slowed), audit_sentence(nothing)]
    file_regression.check("\n".join(lines), extension=".txt", encoding="utf-8")


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
