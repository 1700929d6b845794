"""The page: it is well-formed, uses no network, and escapes all texts."""

from __future__ import annotations

import cProfile
import html.parser
import pstats
import re

import msgspec
import pytest

from ddp_perf.render.model import NextStep
from ddp_perf.render.page import report_page
from ddp_perf.report.figures import MEANINGS, SHOWN
from ddp_perf.report.rows import report_summary
from ddp_perf.report.session_page import build_page
from tests.builders import (
    HOSTILE,
    make_cases,
    make_hostile_result,
    make_measurement,
    make_probe,
    make_result,
)
from tests.reports import ONE, TWO, make_source, make_suite_result

VOID = {"meta", "link", "br"}
SCRIPT = re.compile(r"<script>.*?</script>", re.DOTALL)  # Vega, which contains addresses


class Page(html.parser.HTMLParser):
    """The tags, attributes and text of a page. Each element must be closed, in order."""

    def __init__(self, source):
        super().__init__()
        self.open, self.tags, self.attributes, self.texts = [], [], [], []
        summary = report_summary(source.suites, complete=source.complete)
        self.source = report_page(build_page(source, summary)).decode()
        self.feed(SCRIPT.sub("", self.source))
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, self.getpos()

    def handle_data(self, data):
        self.texts.append(data)

    @property
    def text(self):
        return " ".join(" ".join(self.texts).split())


@pytest.fixture(scope="module")
def page():
    return Page(make_source())


def test_the_page_uses_no_network(page):
    loaded = [
        value for name, value in page.attributes if name in ("src", "href", "srcset", "action")
    ]

    assert loaded == ["data:,"]  # no icon is looked for
    assert "default-src 'none'" in page.source
    own = SCRIPT.sub("", page.source).replace("https://vega.github.io/schema/", "")  # a name
    assert not re.search(r"url\(|@import|https?://|fetch\(|XMLHttp", own)


def test_the_first_screen_shows_failures_reasons_and_intervals(page):
    first = page.source[: page.source.index("<section>")]

    for text in (
        "✗ RED",
        "2 of 4 cases failed, 1 undecided, 1 passed",
        f"{TWO.id}: 20 % slower",
        "step time",
        "1.200",
        "1.150 to 1.250",
        "4 %",
        "communication +2.50 ms (100%): exposed",
        "any false REGRESSION here is 0.4 %, over all verdicts",
        "step time: slower by at most 1.0 % in 1 of 4 cases (99.5 % confidence each)",
    ):
        assert text in first


def test_the_page_has_every_part_of_a_suite(page):
    for text in (
        "quick: Throughput",
        "quick: Speed-up",
        "quick: Efficiency",
        "Each launch of each case",
        "Where the time of a step goes",
        "Steps of each launch",
        "Steps of each rank",
        "Machine and versions",
        "2.13.0",
        "torch 2.12 → 2.13",
        "pytest -m perf 'tests/perf/test_perf.py::test_step_time[x]'",
        "exited with code 3",
    ):
        assert text in page.text
    # Throughput, speed-up, efficiency, launches, terms; the steps of three cases, two of two ranks.
    assert page.tags.count("figure") == 5 + 1 + 2 * 2


def test_every_term_and_every_column_has_its_meaning(page):
    for term, meaning in MEANINGS.items():
        assert f"{term} : {meaning}" in page.text
    explained = re.findall(r'aria-label="What is (.*?)\?"', page.source)
    assert {"ratio", "99 % interval", "min. det.", "step ms", "overhead"} <= set(explained)
    assert set(MEANINGS) == set(SHOWN)


def test_the_first_screen_has_the_next_command_below_the_verdict(monkeypatch):
    step = NextStep(why="Do <this>.", command="pytest -k 'a & b'")
    monkeypatch.setattr("ddp_perf.report.session_page.after_session", lambda suites: step)

    text = Page(make_source()).text

    assert f"1 passed Next: Do <this>. pytest -k 'a & b' {TWO.id}: 20 % slower" in text


def test_a_session_without_a_next_step_has_no_place_for_it(monkeypatch):
    monkeypatch.setattr("ddp_perf.report.session_page.after_session", lambda suites: None)

    assert "Next:" not in Page(make_source()).text


def test_a_case_that_no_test_asserts_is_shown_and_not_counted():
    page = Page(make_source(make_suite_result(asserted={ONE.id: ("step_time",)})))

    assert "UNDECIDED 1 passed; 1 case failed that no test requests" in page.text
    assert "· REGRESSION (no test)" in page.text
    assert "(no test): 2 cases are measured and not counted" in page.text
    assert f"REGRESSION (no test): step time of {TWO.id}: 1.200 × the baseline" in page.text


def test_a_session_without_measurements_has_a_page():
    page = Page(make_source(make_result([], baseline_path="none")))

    assert "? UNDECIDED nothing was measured" in page.text


def test_hostile_text_of_a_results_file_is_escaped(page):
    hostile = Page(make_source(make_hostile_result()))

    types = [value for name, value in hostile.attributes if name == "type" and "json" in value]
    assert hostile.tags.count("script") == len(types) > 0  # descriptions of charts
    assert page.tags.count("script") > len(types)
    assert not [name for name, _ in hostile.attributes if name.startswith("on")]
    assert " ".join(HOSTILE.split()) in hostile.text


def test_verdicts_have_a_sign_beside_their_colour(page):
    for sign, status in (("✗", "RED"), ("?", "UNDECIDED"), ("✓", "GREEN")):
        assert re.search(rf'class="text {status}"[^>]*>{re.escape(sign)}&nbsp;', page.source)


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
    source = make_source(result)
    summary, profile = report_summary(source.suites, complete=True), cProfile.Profile()
    assert len(cases) == count

    page = profile.runcall(lambda: report_page(build_page(source, summary)))

    calls = pstats.Stats(profile).total_calls  # type: ignore[attr-defined]
    return calls, len(page)


def test_a_lone_surrogate_does_not_stop_the_page():
    result = make_suite_result(baseline_path="\ud800")

    assert "Judged against ?" in Page(make_source(result)).text


def test_the_page_says_what_the_audits_of_the_gate_found():
    source = msgspec.structs.replace(make_source(), audits=("of the last 3 hidden nothings, …",))

    page = Page(source)

    assert "What this gate finds of hidden slow-downs" in page.text
    assert "of the last 3 hidden nothings, …" in page.text
    assert "of hidden slow-downs" not in Page(make_source()).text
