"""What is known of a slower case: the commit, what its code does otherwise, and the terms."""

from __future__ import annotations

import msgspec

from ddp_perf.core.verdict import Culprit, Settled
from ddp_perf.report.rows import report_summary
from ddp_perf.report.terminal.text import why_slower
from tests.reports import TWO, make_suite_result

CULPRIT = Culprit(
    kind="commit",
    name="5" * 40,
    title="Fuse the loss",
    author="A",
    probability=0.98,
    ratio=1.2,
    interval=(1.1, 1.3),
    launches=9,
    seconds=30.0,
    why="launches",
)
COMMIT = 'commit 555555555555 "Fuse the loss" by A (98 %): +20.0 % (10.0 to 30.0 %)'
TERM = "communication +2.50 ms (100%): exposed"


def settled(**changes):
    result = make_suite_result()
    return msgspec.structs.replace(result, settled={TWO.id: Settled(reference=None, **changes)})


def test_the_commit_comes_before_what_the_code_does_and_the_terms():
    lines = why_slower(settled(culprit=CULPRIT, causes=("forward: 2 more calls",)), TWO.id)

    assert lines[:2] == (COMMIT, "forward: 2 more calls")
    assert lines[3] == f"  {TERM}"


def test_the_row_of_a_case_names_the_commit_and_the_largest_term():
    row = report_summary([settled(culprit=CULPRIT)], complete=True).rows[1]

    assert row.cause == f"{COMMIT}; {TERM}"
