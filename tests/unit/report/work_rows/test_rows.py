"""The rows of the work report: status, figures, changes and their costs."""

from __future__ import annotations

import pytest

from ddp_perf.core.verdict import Outcome
from ddp_perf.render.model import Status
from ddp_perf.report.work_rows import NOT_COUNTED, step_figures, work_report
from ddp_perf.work.values import CountedCase
from tests.builders import make_case
from tests.work_reports import A100, make_change, make_counted, make_same, make_work_report
from tests.works import SITE, make_site, make_work

ADDED_S = 2 * (3.8e-6 + 67_108_864 / 2039e9)


def test_a_change_has_its_sentence_and_its_cost():
    (row,) = make_work_report(make_counted()).rows
    (change,) = row.changes
    assert change.text == "+2 aten.clone (float32), +134 MB"
    assert change.cost_s == pytest.approx({A100: ADDED_S})
    assert row.costs[0].change_s == pytest.approx(ADDED_S)


def test_the_figures_are_totals_of_both_steps():
    (row,) = make_work_report(make_counted()).rows
    assert row.before is not None
    assert row.after is not None
    assert (row.before.operations, row.after.operations) == (1, 3)
    assert row.after.bytes - row.before.bytes == 2 * 67_108_864


def test_the_optimizers_own_reads_and_those_of_the_reducer_are_no_host_reads():
    read = {"name": "aten._local_scalar_dense", "read": 4}
    trainer = make_site(5, file="ddp_perf/worker/steps/trainer.py")
    work = make_work(
        (SITE, {**read, "phase": "forward"}),
        (SITE, {**read, "phase": "optimizer", "count": 148}),
        (trainer, {**read, "phase": "backward", "dtype": "int32", "count": 28}),
    )
    assert step_figures(work).host_reads == 1


def test_a_change_that_takes_no_time_has_no_cost():
    memory = make_change(kind="memory", what="peak memory", unit="bytes", name="", bytes=0)
    (row,) = make_work_report(make_counted(memory)).rows
    assert row.changes[0].cost_s == {}
    assert row.costs == ()


def test_a_suite_without_accelerators_has_no_cost():
    (row,) = work_report([make_counted()], {}).rows
    assert row.costs == ()
    assert row.changes[0].cost_s == {}


@pytest.mark.parametrize(
    ("outcome", "status"),
    [
        (Outcome.REGRESSION, Status.RED),
        (Outcome.INCOMPARABLE, Status.UNDECIDED),
        (Outcome.NO_BASELINE, Status.UNDECIDED),
        (Outcome.UNDECIDED, Status.UNDECIDED),
        (Outcome.IMPROVEMENT, Status.GREEN),
    ],
)
def test_the_status_is_that_of_the_test(outcome, status):
    report = make_work_report(make_counted(outcome=outcome))
    assert report.rows[0].status is status
    assert report.status is status


def test_the_report_has_the_worst_status_and_counts_cases_by_verdict():
    report = make_work_report(make_same(), make_counted(), make_same())
    assert report.status is Status.RED
    assert report.headline == "3 cases: 2 PASS, 1 REGRESSION"
    assert make_work_report(make_same()).status is Status.GREEN


def test_a_case_that_cannot_be_counted_is_red_with_its_reason():
    report = make_work_report(CountedCase(case=make_case(), failure="my_model.py:3 raised"))
    (row,) = report.rows
    assert (row.status, row.verdict) == (Status.RED, NOT_COUNTED)
    assert row.reason == "my_model.py:3 raised"


def test_a_report_of_nothing_is_not_green():
    report = make_work_report()
    assert (report.status, report.headline) == (Status.UNDECIDED, "nothing was counted")
