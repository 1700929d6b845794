"""The rows of a duel: which verdict a case has, which figures are shown, and its pairs."""

from __future__ import annotations

import msgspec
import pytest

from ddp_perf.core.launch import RankConditions
from ddp_perf.core.verdict import DuelOutcome
from ddp_perf.render.model import Status
from ddp_perf.report.duel.rows import duel_report
from tests.builders import make_case, make_launch, make_probe
from tests.duels import (
    make_case_duel,
    make_duel,
    make_metric_duel,
    make_pairs,
    make_side_failure,
)

CASE = make_case()


def row_of(case, **changes):
    (row,) = duel_report(make_duel(case, **changes)).rows
    return row


@pytest.mark.parametrize(
    ("outcome", "status"),
    [
        (DuelOutcome.SLOWER, Status.RED),
        (DuelOutcome.UNDECIDED, Status.UNDECIDED),
        (DuelOutcome.FASTER, Status.GREEN),
        (DuelOutcome.EQUIVALENT, Status.GREEN),
    ],
)
def test_each_outcome_has_its_status(outcome, status):
    report = duel_report(make_duel(make_case_duel(outcome)))
    assert report.status is report.rows[0].status is status
    assert report.verdict == report.rows[0].verdict == outcome.value


def test_a_case_that_fails_on_side_b_alone_is_broken_and_red():
    broken, failed = (
        duel_report(
            make_duel(
                make_case_duel(
                    DuelOutcome.EQUIVALENT,
                    failures=tuple(make_side_failure(side, CASE) for side in sides),
                )
            )
        )
        for sides in ("B", "AB")
    )
    assert (broken.status, broken.verdict, broken.rows[0].verdict) == (
        Status.RED,
        "BROKEN",
        "BROKEN",
    )
    assert (failed.status, failed.verdict, failed.rows[0].verdict) == (
        Status.UNDECIDED,
        "UNDECIDED",
        "FAILED",
    )


def test_the_step_is_the_figure_that_decides():
    wall = make_metric_duel(CASE, DuelOutcome.UNDECIDED, decides=False)
    cpu = make_metric_duel(CASE, DuelOutcome.SLOWER, metric="cpu_time")
    row = row_of(make_case_duel(DuelOutcome.SLOWER, metrics=(wall, cpu)))
    assert row.step == cpu
    assert row.shown == [cpu]


def test_a_pair_has_the_figures_of_both_sides():
    row = row_of(make_case_duel(DuelOutcome.SLOWER))
    assert row.pairs[0].a["step_time"] == pytest.approx(0.01)
    assert row.pairs[0].b["step_time"] == pytest.approx(0.011)
    assert row.pairs[0].first == "B"


def test_launches_of_side_a_alone_are_kept_apart():
    row = row_of(make_case_duel(DuelOutcome.EQUIVALENT, aa=(make_launch(CASE, step_s=0.03),)))
    assert [figures["step_time"] for figures in row.aa] == [pytest.approx(0.03)]
    assert len(row.pairs) == 4


def test_pairs_without_a_probe_have_no_terms():
    pairs = make_pairs(CASE, [(0.01, 0.01)] * 4)
    assert row_of(make_case_duel(DuelOutcome.EQUIVALENT, pairs=pairs)).terms == ()


def test_what_disturbed_a_side_is_stated_for_that_side():
    stolen = RankConditions(stolen=0.3)
    disturbed = make_pairs(CASE, [(0.01, 0.01)] * 4, probe=make_probe(), conditions=stolen)
    quiet = make_pairs(CASE, [(0.01, 0.01)] * 4, probe=make_probe())
    pairs = tuple(
        msgspec.structs.replace(one, b=other.b) for one, other in zip(quiet, disturbed, strict=True)
    )
    row = row_of(make_case_duel(DuelOutcome.EQUIVALENT, pairs=pairs))
    assert list(row.disturbed) == ["B"]
    assert "4 of 4 launches were disturbed, because the hypervisor took 30 %" in row.disturbed["B"]
