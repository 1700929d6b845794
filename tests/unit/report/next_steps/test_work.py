"""The table of counted work."""

from __future__ import annotations

import pytest

from ddp_perf.core.verdict import Outcome
from ddp_perf.report.next_steps import work
from tests.work_reports import make_counted, make_same

COMMAND = "pytest -m work -n 2"
MORE = make_counted(outcome=Outcome.REGRESSION)
OTHER = make_counted(outcome=Outcome.UNDECIDED)
TORCH = make_counted(outcome=Outcome.INCOMPARABLE)
NEW = make_counted(outcome=Outcome.NO_BASELINE)
LESS = make_counted(outcome=Outcome.IMPROVEMENT)
STORED = [make_counted(saved=f"x y/{name}.json") for name in "bab"]
ROWS = {
    "failed": [MORE, make_counted(verdict=None, work=None, failure="ZeroDivisionError")],
    "more work": [NEW, LESS, MORE],
    "other work": [TORCH, OTHER],
    "other torch": [NEW, TORCH],
    "new": [LESS, NEW],
    "less work": [*STORED, LESS],
    "stored": STORED,
    "stored in one file": STORED[:1],
    "passed": [make_same()],
    "nothing": [],
}


def test_the_first_rule_that_applies_decides(check):
    check(ROWS, lambda cases: work.after_work(cases, COMMAND), work, "WORK")


@pytest.mark.parametrize("option", ["", "=missing", " append"])
@pytest.mark.parametrize("row", ROWS)
def test_a_command_says_once_what_it_stores(row, option):
    given = work.after_work(ROWS[row], f"{COMMAND} --save-baseline{option}")

    assert given == work.after_work(ROWS[row], COMMAND)
