"""The intervals of a duel in characters."""

from __future__ import annotations

import pytest

from ddp_perf.core.verdict import DuelOutcome
from ddp_perf.report.duel.forest import forest
from ddp_perf.report.duel.rows import duel_report
from tests.builders import make_cases
from tests.duels import make_case_duel, make_duel, make_metric_duel

CASES = make_cases(world_sizes=[1, 2, 4, 8], batch_sizes=[16, 32, 64])


def drawn(*changes, name="a case"):
    """Return the lines of a forest with a case for each change, after the head."""
    cases = [
        make_case_duel(
            DuelOutcome.EQUIVALENT,
            case,
            metrics=(
                make_metric_duel(case, DuelOutcome.EQUIVALENT, ratio=1 + middle, interval=ends),
            ),
        )
        for case, (low, middle, high) in zip(CASES, changes, strict=False)
        for ends in [(1 + low, 1 + high)]
    ]
    rows = duel_report(make_duel(*cases)).rows
    return forest(rows, {case.id: name for case in CASES}, "duel.html").splitlines()


def test_zero_and_the_tolerances_are_marked_in_each_line_below_their_labels():
    head, line = drawn((0.01, 0.02, 0.03))

    for label, mark in (("-5 %", ":"), ("0", "│"), ("+5 %", ":")):
        assert mark in line[head.index(label) : head.index(label) + len(label)]
    assert line.index("│") < line.index("├") < line.index("●") < line.index("┤") < line.rindex(":")
    assert line.endswith("+2.0 % EQUIVALENT")


@pytest.mark.parametrize(
    ("change", "shown"),
    [
        ((-0.9, 0.0, 0.9), "◄───"),
        ((-0.9, 0.0, 0.9), "───►"),
        ((0.02, 0.4, 2.0), "─►"),
        ((-0.9, -0.9, -0.8), "┤"),
    ],
)
def test_an_interval_beyond_the_axis_has_an_arrow_at_its_edge(change, shown):
    assert shown in drawn(change)[1]


def test_a_line_fits_and_a_long_name_is_cut():
    lines = drawn((-2.0, 1.0, 9.99), (-0.01, 0.0, 0.01), name="x" * 80)

    assert max(map(len, lines)) <= 72
    assert lines[1].startswith(f"{'x' * 19}… ")
    assert len({line.index(":") for line in lines[2:]}) == 1


def test_many_cases_are_shortened():
    lines = drawn(*[(-0.01, 0.0, 0.01)] * 12)

    assert len(lines) == 10
    assert lines[-1] == "and 4 more cases: see duel.html"


def test_without_an_interval_there_is_no_picture():
    rows = duel_report(make_duel(make_case_duel(DuelOutcome.UNDECIDED, metrics=()))).rows

    assert forest(rows, {row.case: row.case for row in rows}, "duel.html") == ""
