"""The table of terms, and the lines of an explanation."""

from __future__ import annotations

import msgspec
import pytest

from ddp_perf.core.verdict import Cause, Delta, Explanation, Outcome
from ddp_perf.render.terminal import table_lines
from ddp_perf.report.case_text import explanation_lines
from ddp_perf.report.figures import SHOWN
from ddp_perf.report.step_terms import advice_lines, term_parts
from tests.builders import make_cases, make_finding, make_measurement, make_probe, make_result

ONE, TWO = make_cases()


def result_of(probe, step_s=0.0111, **changes):
    alone = make_probe(exposed=0.0, communication=())
    measurements = [
        make_measurement(ONE, [0.0071, 0.0071], probe=probe and alone),
        make_measurement(TWO, [step_s, step_s], probe=probe),
    ]
    return make_result(measurements, **changes)


def row_of(table, case):
    (row,) = (row for row in table.rows if row[0].text == case.id)
    return [cell.text for cell in row[1:]]


CERTAIN = Delta(name="optimizer", before=0.001, after=0.0015, uncertainty=0.0)
WHY = Explanation(
    case_id=TWO.id,
    step_change_s=0.0064,
    causes=(
        Cause(kind="more communication", change_s=0.0061, share=0.953, evidence=("this", "that")),
        Cause(kind="compute", change_s=0.0003, share=0.047, evidence=("forward",)),
    ),
    terms=(),
    launches=5,
)


def test_decomposition_has_every_term_in_the_order_of_a_step():
    _, table = term_parts(result_of(make_probe()))

    titles = [column.title.replace("\u00ad", "") for column in table.columns]
    assert titles == ["ms a step", *SHOWN, "hidden"]
    terms = ["0.10", "2.00", "4.00", "0.00", "1.00", "0.00", "0.00"]
    assert row_of(table, ONE) == [*terms, "0.00", "0.00", "–"]
    assert row_of(table, TWO) == [*terms, "3.00", "1.00", "40%"]


@pytest.mark.parametrize(
    ("probe", "step_s", "cells", "hidden"),
    [
        pytest.param({}, 0.0111, {"exposed": "3.00", "rest": "1.00"}, "40%", id="usual"),
        pytest.param({}, 0.0095, {"exposed": "3.00", "rest": "–"}, "40%", id="terms too long"),
        pytest.param({"exposed": 0.006}, 0.0131, {}, "0%", id="dearer than alone: 5 ms"),
        pytest.param(
            {"unsynchronised_backward": (0.009,) * 8},  # its steps do not compare
            0.0111,
            {"backward": "4.00", "interference": "0.00", "exposed": "3.00"},
            "40%",
            id="a longer backward alone",
        ),
        pytest.param(
            {"sees_communication": False},
            0.0111,
            {"backward": "4.00", "interference": "–", "exposed": "–"},
            None,
            id="unseen communication",
        ),
    ],
)
def test_a_term_is_a_figure_only_if_it_was_seen(probe, step_s, cells, hidden):
    _, table = term_parts(result_of(make_probe(**probe), step_s))

    found = dict(zip([*SHOWN, "hidden"], row_of(table, TWO), strict=True))
    assert {name: found[name] for name in cells} == cells
    assert found["hidden"] == (hidden or "–")


def test_terms_of_longer_steps_than_the_timed_ones_are_not_shown():
    """A probed step takes 10.1 ms: a launch that was timed on a quieter machine has no terms."""
    _, usual = term_parts(result_of(make_probe()))
    _, table, last = term_parts(result_of(make_probe(), 0.0090))

    assert [row[0].text for row in usual.rows] == [ONE.id, TWO.id]
    assert [row[0].text for row in table.rows] == [ONE.id]
    assert last.text == (
        "ddp-ws2: no terms, since they are measured on later steps, which took 10.10 ms, and the"
        " timed ones 9.00 ms"
    )
    assert advice_lines(result_of(make_probe(), 0.0090), TWO.id) == []


def test_launches_whose_terms_are_of_timed_steps_are_enough():
    slower = make_measurement(TWO, [0.0111] * 3, probe=make_probe(forward=0.009))
    like = make_measurement(TWO, [0.0111] * 3, probe=make_probe())
    launches = (*slower.launches[:2], *like.launches[:1])
    result = make_result([msgspec.structs.replace(like, launches=launches)])

    _, table = term_parts(result)

    assert row_of(table, TWO)[1] == "2.00"  # forward


def test_decomposition_fits_a_narrow_terminal():
    probe = make_probe(**dict.fromkeys(("data", "forward", "backward", "exposed"), 12.345))
    _, table = term_parts(result_of(probe, 50.0))
    lines = table_lines(table, 80)
    assert "12345" in "".join(lines).replace(",", "")
    assert max(map(len, lines)) <= 80


def test_one_rank_has_no_advice_and_launches_without_a_probe_have_no_table():
    assert advice_lines(result_of(make_probe()), ONE.id) == []
    assert [*term_parts(result_of(None))] == []
    assert advice_lines(result_of(None), TWO.id) == []


def test_a_cause_larger_than_the_change_is_explained_instead_of_a_share():
    larger = msgspec.structs.replace(WHY.causes[0], share=1.17)
    head, line = explanation_lines(msgspec.structs.replace(WHY, causes=(larger,)))
    assert head == "where the +6.40 ms of a step went:"
    assert line == (
        "  more communication +6.10 ms (more than the whole change, since other terms shrank):"
        " this; that"
    )


def test_explanation_lines_mark_likely_causes_and_show_uncertainties_of_terms():
    terms = [
        Delta(name=name, before=0.002, after=after, uncertainty=0.0005)
        for name, after in [("forward", 0.0021), ("exposed", 0.001), ("data", 0.006)]
    ]
    likely = Cause(kind="data", change_s=0.004, share=1.0, evidence=("late",), likely=True)
    why = msgspec.structs.replace(
        WHY, step_change_s=0.004, causes=(likely,), terms=(*terms, CERTAIN)
    )
    assert explanation_lines(why)[1:] == [
        "  likely data +4.00 ms: late",
        "  terms that changed, ms: data 2.00 → 6.00 (uncertainty ± 0.50),"
        " exposed 2.00 → 1.00 (uncertainty ± 0.50), optimizer 1.00 → 1.50 (uncertainty ± 0.00)",
    ]


def test_explanation_lines_state_that_the_probed_launches_were_not_slower():
    nothing = Explanation(case_id=TWO.id, step_change_s=-0.001, causes=(), terms=(), launches=5)
    (line,) = explanation_lines(nothing)
    assert (
        line == "the parts of a step do not show why: in 5 probed launches it changed by -1.00 ms"
    )


@pytest.mark.parametrize(
    ("metric", "outcome", "labelled"),
    [
        ("step_time", Outcome.REGRESSION, False),
        ("efficiency", Outcome.REGRESSION, False),
        ("efficiency", Outcome.PASS, True),
        ("peak_memory", Outcome.REGRESSION, True),
    ],
)
def test_a_case_that_got_slower_has_advice_and_no_label(metric, outcome, labelled):
    finding = make_finding(TWO, outcome, metric=metric)
    lines = advice_lines(result_of(make_probe(), findings=(finding,)), TWO.id)
    assert lines[-1].startswith("- ")
    assert (lines[0] == "Fair: 64% efficiency on 2 ranks") is labelled
