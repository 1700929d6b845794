"""Annotations of a duel: at the line where side B does more, if the case is slower."""

from __future__ import annotations

from pathlib import Path

from ddp_perf.core.verdict import DuelOutcome
from ddp_perf.report.annotations import duel_annotation_lines
from tests.builders import make_case
from tests.duels import make_case_duel, make_duel, make_side_failure
from tests.work_reports import make_change
from tests.works import make_site

CASE = make_case()


def annotated(*cases):
    return duel_annotation_lines(make_duel(*cases), [], Path("/nowhere"))


def test_a_slower_case_is_an_error_at_the_line_that_does_more():
    (line,) = annotated(make_case_duel(DuelOutcome.SLOWER, work=(make_change(),)))
    assert line == (
        f"::error file=my_model.py,line=42,title=SLOWER (+10.0 %25)%3A {CASE.id}"
        "::+2 aten.clone (float32), +134 MB"
    )


def test_the_edited_line_is_preferred():
    case = make_case_duel(DuelOutcome.SLOWER, work=(make_change(),), lines=(make_site(7),))
    (line,) = annotated(case)
    assert "line=7," in line


def test_a_slower_case_without_such_a_line_has_its_reason():
    (line,) = annotated(make_case_duel(DuelOutcome.SLOWER))
    assert line.endswith("::step time: SLOWER, because")


def test_a_broken_case_has_its_failure_and_no_line_that_did_not_make_it():
    case = make_case_duel(
        DuelOutcome.EQUIVALENT, work=(make_change(),), failures=(make_side_failure("B", CASE),)
    )
    (line,) = annotated(case)
    assert line == (
        f"::error title=BROKEN%3A {CASE.id}"
        f"::side B: {CASE.id}: launch 1: rank 1: exited with code 3"
    )


def test_only_red_cases_are_annotated():
    more = (make_change(),)
    assert annotated(make_case_duel(DuelOutcome.EQUIVALENT, work=more)) == []
    assert annotated(make_case_duel(DuelOutcome.UNDECIDED, work=more)) == []
