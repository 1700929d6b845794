"""One row for each case: its verdict is the worst, its figures are those of the table."""

from __future__ import annotations

import msgspec
import pytest

from ddp_perf.baselines.save import Saved
from ddp_perf.core.launch import Unit
from ddp_perf.core.measurement import Known
from ddp_perf.core.verdict import Outcome
from ddp_perf.render.model import Status
from ddp_perf.report.rows import FAILED, NOT_JUDGED, report_summary
from tests.builders import (
    make_acknowledgement,
    make_case,
    make_excuse,
    make_finding,
    make_measurement,
    make_result,
)
from tests.reports import ONE, TWO, make_suite_result


@pytest.fixture
def summary():
    return report_summary([make_suite_result()], complete=True)


@pytest.mark.parametrize(
    ("others", "worst", "status"),
    [
        ([Outcome.IMPROVEMENT], Outcome.PASS, Status.GREEN),
        ([Outcome.UNDECIDED, Outcome.IMPROVEMENT], Outcome.UNDECIDED, Status.UNDECIDED),
        ([Outcome.UNDECIDED, Outcome.SUSPECT], Outcome.SUSPECT, Status.UNDECIDED),
        ([Outcome.REGRESSION, Outcome.INVALID], Outcome.REGRESSION, Status.RED),
    ],
)
def test_the_worst_verdict_represents_a_case(others, worst, status):
    found = [make_finding(ONE, outcome, metric="tail") for outcome in others]
    found.append(make_finding(ONE, Outcome.PASS))
    result = make_result([make_measurement(ONE, [0.01])], findings=tuple(found))

    (row,) = report_summary([result], complete=True).rows

    assert (row.verdict, row.status) == (worst.value, status)


def test_a_row_has_the_figures_of_its_case(summary):
    row = summary.rows[1]

    assert (row.step_s, row.step_low_s, row.step_high_s) == (0.0150, 0.0149, 0.0151)
    assert row.throughput == pytest.approx(128 / 0.0150)
    assert row.speedup == pytest.approx(2 * 0.0100 / 0.0150)
    assert row.efficiency == pytest.approx(0.0100 / 0.0150)
    assert row.baseline_level_s == 0.0125
    assert (row.ratio, row.ratio_low, row.ratio_high) == (1.2, 1.15, 1.25)
    assert row.cause == "communication +2.50 ms: exposed"
    assert row.epoch_s is None


def test_a_case_without_its_single_rank_run_has_no_speedup_and_no_efficiency():
    (row,) = report_summary([make_result([make_measurement(TWO, [0.01])])], complete=True).rows

    assert (row.speedup, row.efficiency, row.scaling_overhead_s) == (None, None, None)
    assert (row.verdict, row.status) == (NOT_JUDGED, Status.UNDECIDED)
    assert row.reason == "the session ended before it judged this case; run it again"


@pytest.mark.parametrize(
    ("changes", "samples"),
    [({"model": {"dataset": "imdb"}}, 25_000), ({"epoch_samples": 640}, 640)],
)
def test_epoch_time_is_computed_if_its_samples_are_known(changes, samples):
    measurement = make_measurement(
        make_case(**changes), [0.01], unit=Unit(name="tokens", per_sample=512)
    )
    (row,) = report_summary([make_result([measurement])], complete=True).rows

    assert row.unit == "tokens"
    assert row.epoch_s == pytest.approx(samples / (128 / 0.01))


@pytest.mark.parametrize(
    ("outcome", "saved", "mode", "status"),
    [
        (Outcome.IMPROVEMENT, False, None, Status.GREEN),
        (Outcome.MEETS_TARGET, False, None, Status.GREEN),
        (Outcome.SUSPECT, False, None, Status.UNDECIDED),
        (Outcome.INVALID, False, None, Status.UNDECIDED),
        (Outcome.NO_BASELINE, False, None, Status.UNDECIDED),
        (Outcome.NO_BASELINE, True, "missing", Status.UNDECIDED),
        (Outcome.INCOMPARABLE, False, None, Status.RED),
        (Outcome.MISSES_TARGET, False, None, Status.RED),
        (Outcome.REGRESSION, True, "append", Status.RED),
        (Outcome.REGRESSION, True, "accept", Status.UNDECIDED),
    ],
)
def test_status_of_a_case_is_that_of_its_test(outcome, saved, mode, status):
    result = make_result(
        [make_measurement(TWO, [0.01])],
        findings=(make_finding(TWO, outcome),),
        saved={TWO.id: Saved(path="cpu.json", mode=mode)} if saved else {},
        save_mode=mode,
    )

    (row,) = report_summary([result], complete=True).rows

    assert row.status is status
    assert row.reason == "because"


def known(state):
    return Known(acknowledgement=make_acknowledgement(TWO), state=state)


@pytest.mark.parametrize("outcome", [Outcome.REGRESSION, Outcome.INCOMPARABLE])
def test_an_unexpected_verdict_precedes_an_acknowledged_one(outcome):
    findings = (
        make_finding(TWO, Outcome.REGRESSION, known=known("expected")),
        make_finding(TWO, outcome, metric="tail"),
    )
    result = make_result([make_measurement(TWO, [0.01])], findings=findings)

    (row,) = report_summary([result], complete=True).rows

    assert (row.metric, row.status) == ("tail", Status.RED)


def test_a_session_that_was_cut_short_is_not_green():
    good = make_result([make_measurement(ONE, [0.01])], findings=(make_finding(ONE, Outcome.PASS),))

    assert report_summary([good], complete=True).status is Status.GREEN
    cut = report_summary([good], complete=False)
    assert cut.status is Status.UNDECIDED
    assert "did not measure all" in cut.headline


def test_a_disturbed_case_names_its_disturbance():
    finding = make_finding(TWO, Outcome.INVALID, reason="why", notes=make_excuse("others ran"))
    result = msgspec.structs.replace(make_suite_result(), findings=(finding,))

    assert report_summary([result], complete=True).rows[1].reason == "others ran"


def test_a_verdict_that_no_test_asserts_does_not_represent_its_case():
    findings = (
        make_finding(TWO, Outcome.REGRESSION),
        make_finding(TWO, Outcome.PASS, metric="structure"),
    )
    result = make_result(
        [make_measurement(TWO, [0.01])], findings=findings, asserted={TWO.id: ("structure",)}
    )

    summary = report_summary([result], complete=True)

    assert (summary.rows[0].verdict, summary.rows[0].metric) == ("PASS", "structure")
    assert summary.status is Status.GREEN
    assert summary.untested == (f"REGRESSION (no test): step time of {TWO.id}",)


def test_a_case_that_no_test_asserts_is_marked_and_not_counted():
    suite = make_suite_result(asserted={ONE.id: ("step_time",)})

    summary = report_summary([suite], complete=True)

    assert [(row.verdict, row.status) for row in summary.rows] == [
        ("PASS", Status.GREEN),
        ("REGRESSION (no test)", Status.UNTESTED),
        ("UNDECIDED (no test)", Status.UNTESTED),
        (f"{FAILED} (no test)", Status.UNTESTED),
    ]
    assert (summary.status, summary.headline) == (
        Status.UNDECIDED,
        "1 passed; 1 case failed that no test requests",
    )
    assert summary.counts == {"PASS": 1}
    assert summary.untested[0] == (
        "(no test): 2 cases are measured and not counted: no test asserts their verdicts"
    )


def test_a_case_that_was_not_judged_before_the_session_ended_does_not_lack_a_test():
    result = make_result(
        [make_measurement(ONE, [0.01]), make_measurement(TWO, [0.01])],
        asserted={TWO.id: ("step_time",)},
    )

    assert report_summary([result], complete=False).untested == ()


def test_a_session_whose_tests_assert_nothing_is_undecided():
    summary = report_summary([make_suite_result(asserted={ONE.id: ()})], complete=True)

    assert (summary.status, summary.headline) == (
        Status.UNDECIDED,
        "no test asserts a verdict; 1 case failed that no test requests",
    )
