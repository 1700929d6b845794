"""The page of a session: what only it has; see test_canonical.py for its text."""

from __future__ import annotations

import cProfile
import pstats
import re

import msgspec
import pytest

from ddp_perf.render.page import report_page
from ddp_perf.report.figures import MEANINGS, SHOWN
from ddp_perf.report.next_steps.session import after_session
from ddp_perf.report.rows import report_summary
from ddp_perf.report.session_page import build_page
from ddp_perf.report.session_report import build_session
from tests.builders import (
    HOSTILE,
    make_cases,
    make_hostile_result,
    make_measurement,
    make_probe,
    make_result,
)
from tests.pages import page_text
from tests.reports import ONE, TWO, make_source, make_suite_result


def page_of(source):
    summary = report_summary(source.suites, complete=source.complete)
    report = build_session(source.suites, summary, after_session(source.suites))
    return report_page(build_page(source, summary, report))


def text_of(source):
    return page_text(page_of(source))


def test_every_term_and_every_column_has_its_meaning():
    page = page_of(make_source()).decode()

    for term, meaning in MEANINGS.items():
        assert f"<b>{term}</b>: {meaning}" in page.replace("&#39;", "'")
    explained = re.findall(r'aria-label="What is (.*?)\?"', page)
    assert {"change", "99 % interval", "detects", "step ms", "overhead"} <= set(explained)
    assert set(MEANINGS) == set(SHOWN)


def test_only_cases_that_are_not_green_have_charts_of_their_own():
    """The steps of three cases, and of the ranks of two of them."""
    text = text_of(make_source())

    assert text.count("[chart] Steps of each launch") == 3
    assert text.count("[chart] Steps of each rank") == 2
    assert text.index("[chart] Steps") > text.index(f"### {TWO.id}")


def test_a_case_that_no_test_asserts_is_shown_and_not_counted():
    text = text_of(make_source(make_suite_result(asserted={ONE.id: ("step_time",)})))

    for line in (
        "1 passed; 1 case failed that no test requests",
        "(no test): 2 cases are measured and not counted: no test asserts their verdicts",
        f"REGRESSION (no test): step time of {TWO.id}: 1.200 × the baseline",
    ):
        assert line in text.splitlines()
    assert "· REGRESSION (no test)" in text


def test_a_session_without_measurements_has_a_page_and_no_next_step():
    text = text_of(make_source(make_result([], baseline_path="none")))

    assert "? UNDECIDED\nnothing was measured\n" in text
    assert "Next:" not in text


def test_hostile_text_of_a_results_file_is_escaped_in_charts_as_well():
    page = page_of(make_source(make_hostile_result()))

    assert b"<script>alert" not in page
    assert b"<svg onload" not in page
    assert b'type="application/json"' in page
    assert " ".join(HOSTILE.split()) in " ".join(page_text(page).split())


@pytest.mark.slow
def test_work_and_size_of_a_page_are_proportional_to_its_cases():
    (few_calls, _), (many_calls, many_bytes) = (work_and_bytes(cases) for cases in (50, 200))

    assert many_calls <= 4 * few_calls
    assert many_bytes < 2e6


def work_and_bytes(count):
    """Return the number of function calls for a page of ``count`` cases, and its size in bytes."""
    cases = make_cases(batch_sizes=list(range(1, count // 2 + 1)), steps=60, warmup=5)
    steps = tuple(0.01 + 1e-5 * (i % 7) for i in range(55))
    launches = [steps] * 10
    result = make_result([make_measurement(case, launches, probe=make_probe()) for case in cases])
    profile = cProfile.Profile()
    assert len(cases) == count

    page = profile.runcall(page_of, make_source(result))

    calls = pstats.Stats(profile).total_calls  # type: ignore[attr-defined]
    return calls, len(page)


def test_a_lone_surrogate_does_not_stop_the_page():
    assert "Judged against ?" in text_of(make_source(make_suite_result(baseline_path="\ud800")))


def test_the_page_says_what_the_audits_of_the_gate_found():
    source = msgspec.structs.replace(make_source(), audits=("of the last 3 hidden nothings, …",))

    heading = "### What this gate finds of hidden slow-downs\nof the last 3 hidden nothings, …"
    assert heading in text_of(source)
    assert "of hidden slow-downs" not in text_of(make_source())
