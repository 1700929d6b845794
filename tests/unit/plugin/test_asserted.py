"""The page and pytest agree: a verdict counts only if a test asserts it."""

from __future__ import annotations

import pytest

from ddp_perf.render.model import Status
from ddp_perf.report.rows import report_summary
from ddp_perf.session.result import read_results
from tests.builders import make_failure, make_launch

ONE, TWO = "mlp-none-fp32-ws1-b16", "mlp-ddp-fp32-ws2-b16"
SLOWER_ALONE, BOTH_SLOWER = (0.020, 0.012), (0.020, 0.024)


def summary_of(project, *arguments):
    """Run a session; return pytest's result, and the summary that the page is written from."""
    done = project.run("--ddp-json=results.json", "--ddp-report=out", *arguments)
    page = (project.path / "out" / "index.html").read_text(encoding="utf-8")
    results = read_results(project.path / "results.json")
    summary = report_summary(results.suites, complete=results.complete)
    assert f"<span>{summary.headline}</span>" in page
    return done, summary


def verdicts_of(summary):
    return {row.case: (row.verdict, row.status) for row in summary.rows}


@pytest.mark.parametrize(
    ("selected", "steps_s", "failed", "headline"),
    [
        ("step_time and ws2", SLOWER_ALONE, 0, "1 passed"),
        ("step_time and ws2", BOTH_SLOWER, 1, "1 of 1 case red"),
        ("step_time and ws1", BOTH_SLOWER, 1, "1 of 1 case red"),
        ("step_time", BOTH_SLOWER, 2, "2 of 2 cases red"),
        ("structure", BOTH_SLOWER, 0, "2 passed"),
        ("structure or (step_time and ws2)", BOTH_SLOWER, 1, "1 of 2 cases red, 1 passed"),
    ],
)
def test_the_page_counts_the_cases_that_pytest_counts(project, selected, steps_s, failed, headline):
    project.store()
    project.answer = project.steps_of(*steps_s)

    done, summary = summary_of(project, "-k", selected)

    assert done.parseoutcomes().get("failed", 0) == failed
    assert summary.headline == headline
    assert summary.status is (Status.RED if failed else Status.GREEN)


def test_a_one_rank_case_that_no_test_asserts_is_shown_and_not_counted(project):
    project.store()
    project.answer = project.steps_of(*SLOWER_ALONE)

    done, summary = summary_of(project, "-k", "step_time and ws2")

    assert verdicts_of(summary) == {
        ONE: ("REGRESSION (no test)", Status.UNTESTED),
        TWO: ("PASS", Status.GREEN),
    }
    assert summary.counts == {"PASS": 1}
    text = " ".join(str(done.stdout).split())
    assert "(no test): 1 case is measured and not counted: no test asserts its verdicts" in text
    assert f"REGRESSION (no test): step time of {ONE}: 2.0" in text
    page = " ".join((project.path / "out" / "index.html").read_text(encoding="utf-8").split())
    assert f"REGRESSION (no test): step time of {ONE}: 2.0" in page


def test_a_metric_that_no_test_asserts_is_shown_and_not_counted(project):
    project.store()
    project.answer = project.steps_of(*BOTH_SLOWER)

    _, summary = summary_of(project, "-k", "structure and ws2")

    assert verdicts_of(summary)[TWO] == ("PASS", Status.GREEN)
    *_, line = summary.untested
    assert line.startswith(f"REGRESSION (no test): step time of {TWO}: 2.0")
    assert "step time: " not in "".join(summary.ruled_out)


def test_a_case_that_fails_and_that_no_test_requests_is_named_and_leaves_the_page_undecided(
    project,
):
    project.store()
    good = project.steps_of(0.010, 0.012)
    project.answer = lambda request: (
        make_failure(request.case, request.round) if request.case.world_size == 1 else good(request)
    )

    done, summary = summary_of(project, "-k", "structure and ws2")

    assert done.ret == 0
    assert verdicts_of(summary)[ONE] == ("FAILED (no test)", Status.UNTESTED)
    assert summary.status is Status.UNDECIDED
    assert summary.headline == "1 passed; 1 case failed that no test requests"
    failure = f"FAILED (no test): {make_failure(project.cases()[0])}"
    assert summary.untested == (failure,)
    assert failure in " ".join(str(done.stdout).split())


@pytest.mark.parametrize(
    ("body", "failed", "headline"),
    [
        ("ddp_measure(CASE).assert_verdict('step_time')", 1, "1 of 1 case red"),
        ("ddp_measure(CASE).assert_verdict('structure')", 0, "1 passed"),
        ("assert ddp_measure(CASE).figures.step_s", 0, "no test asserts a verdict"),
    ],
    ids=["step time", "structure", "no verdict"],
)
def test_a_test_of_ones_own_counts_by_the_verdicts_that_it_asserts(project, body, failed, headline):
    project.store()
    project.answer = project.steps_of(*BOTH_SLOWER)
    (project.path / "test_own.py").write_text(
        f"import pytest\nCASE = {TWO!r}\n@pytest.mark.cpu\ndef test_own(ddp_measure):\n    {body}\n"
    )

    done, summary = summary_of(project, "test_own.py")

    assert (done.ret == 1) is bool(failed)
    assert summary.headline == headline
    assert verdicts_of(summary)[ONE] == ("REGRESSION (no test)", Status.UNTESTED)


def test_failed_launches_fail_the_page_if_a_test_requests_the_case(project):
    project.answer = lambda request: make_failure(request.case, request.round)
    (project.path / "test_own.py").write_text(
        f"import pytest\n@pytest.mark.cpu\ndef test_own(ddp_measure): ddp_measure({ONE!r})\n"
    )

    done, summary = summary_of(project, "test_own.py")

    assert done.ret == 1
    assert summary.status is Status.RED


def test_a_session_that_is_interrupted_counts_what_its_tests_would_have_asserted(project):
    project.store()

    def answer(request):
        if request.round == 1:
            pytest.exit("stopped")
        return make_launch(request.case, request.round)

    project.answer = answer

    _, summary = summary_of(project, "-k", "step_time")

    assert summary.status is Status.UNDECIDED
    assert [row.status for row in summary.rows] == [Status.UNDECIDED] * 2
