"""A name that is markup, a formula or a command is data in every medium."""

from __future__ import annotations

import csv
import io
import json
import re
from html.parser import HTMLParser

import msgspec
import pytest
import yaml

from ddp_perf.history.events import Event, EventKind
from ddp_perf.history.records import record_of
from ddp_perf.history.standing import Regression, State
from ddp_perf.render.annotations import github_lines, gitlab_json
from ddp_perf.render.checkout import CHECKOUT
from ddp_perf.render.markdown import report_markdown
from ddp_perf.render.model import Note, Section
from ddp_perf.render.page import report_page
from ddp_perf.render.terminal import report_text
from ddp_perf.report import export
from ddp_perf.report.next_steps.session import after_session
from ddp_perf.report.notification import notification, slack_text
from ddp_perf.report.rows import report_summary
from ddp_perf.report.session_report import build_session
from tests.builders import make_environment, make_hostile_result

NAMES = {
    "an element": '"><script>alert(1)</script><img src=x onerror=alert(1)>',
    "a link": "](javascript:alert(1)) [a](javascript:alert(1))",
    "a formula": "=cmd|'/c calc'!A1",
    "a command of GitHub": "a\n::error::b\n  ::set-output name=a::b\r\n##[add-mask]c ##vso[task]d",
    "a quick action of GitLab": "a\n/close\n  /approve",
    "another direction": "a\u202eb\u2066c\u200fd",
    "a colour": "a\x1b[31mb\x1b]0;c\x07\x9b2J",
    "a label": 'a"} 1\nevil{b="c',
    "a row": 'a,"b"\r\nc | d | e',
}
_UNSEEN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200f\u202e\u2066]")


@pytest.fixture(params=NAMES, ids=lambda name: name.replace(" ", "_"))
def name(request):
    return NAMES[request.param]


@pytest.fixture
def report(name):
    suites = [make_hostile_result(name)]
    return build_session(suites, report_summary(suites, complete=True), after_session(suites))


@pytest.fixture
def record(name):
    result = make_hostile_result(name)
    hosts = {"host": name, "branch": name, "accelerator": name, "accelerator_key": name}
    healthy = [msgspec.structs.replace(one, failures=()) for one in result.measurements.values()]
    return record_of(
        msgspec.structs.replace(
            result,
            measurements={one.case.id: one for one in healthy},
            environment=make_environment(commit=name, **hosts),
            injections=(),
            job=f"https://ci/{name}",
        )
    )


class _Elements(HTMLParser):
    """The elements of a page, with the names of their attributes, and where links lead."""

    def __init__(self, page):
        super().__init__()
        self.found, self.links = set(), set()
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.found |= {(tag, name) for name, _ in attrs} | {(tag, "")}
        self.links |= {value for name, value in attrs if name in ("href", "src")}


def test_a_page_has_no_element_of_a_name(report, name):
    page = _Elements(report_page(report).decode())

    plain = [make_hostile_result("plain")]
    summary = report_summary(plain, complete=True)
    known = _Elements(report_page(build_session(plain, summary, after_session(plain))).decode())
    assert page.found <= known.found
    assert page.links == known.links
    assert not _UNSEEN.search(report_page(report).decode().replace("\r", ""))


def test_a_comment_has_neither_an_element_nor_a_link_nor_a_command_of_a_name(report, name):
    printed = Section(title="printed", parts=(Note(text=f"a\n{name}", kind="output"),))
    sections = (*report.sections, printed)
    comment = report_markdown(msgspec.structs.replace(report, sections=sections))

    assert not {tag for tag, _ in _Elements(comment).found} - {"details", "summary", "pre"}
    interpreted = re.sub(r"<pre>.*?</pre>", "", comment, flags=re.DOTALL)
    assert not re.search(r"(?<!\\)\]\(", interpreted)
    assert not re.search(r"^\s*/", comment, re.MULTILINE)
    assert not _UNSEEN.search(comment)


def test_a_log_has_no_command_of_a_name_and_no_terminal_obeys_it(report):
    text = report_text(report, 80, whole=True)

    assert not re.search(r"^\s*::|##\[|##vso\[", text, re.MULTILINE)
    assert not _UNSEEN.search(text)


def test_an_annotation_is_one_command(report):
    lines = github_lines(report, CHECKOUT)

    assert lines
    for line in lines:
        assert len(line.splitlines()) == 1
        assert re.match(r"::(error|warning) title=[^:,]*::", line)
        assert not _UNSEEN.search(line)
    assert json.loads(gitlab_json(report))


def test_a_row_of_csv_has_its_cells_and_no_formula(record, name):
    rows = list(csv.reader(io.StringIO(export.history_csv([record]), newline="")))

    assert len(rows) > 1
    assert {len(row) for row in rows} == {len(rows[0])}
    assert not [cell for row in rows for cell in row if cell.startswith(("=", "+", "@", "\t"))]
    assert any(name in cell for cell in rows[1])


def test_a_name_is_one_label(record, name):
    text = export.prometheus_text([record])

    label = r'[a-z]+="(?:[^"\\\n]|\\["\\n])*"'
    sample = re.compile(rf"ddp_perf_\w+\{{{label}(?:,{label})*\}} \S+")
    lines = [line for line in text.split("\n") if line and not line.startswith("# ")]
    assert lines
    assert [line for line in lines if not sample.fullmatch(line)] == []
    (line, *_) = export.otlp_lines([record]).splitlines()
    assert json.dumps(name) in json.dumps(json.loads(line))


def test_a_name_is_one_text_of_other_formats(record, name):
    for text in (export.bencher_json([record]), export.action_benchmark_json([record])):
        assert json.dumps(name)[1:-1] in json.dumps(json.loads(text))
    files = dict(export.otava_files([record]))
    assert all(re.fullmatch(r"[\w.-]+", file) for file in files)
    assert any(name in test for test in yaml.safe_load(files["otava.yaml"])["tests"])


def test_a_metric_of_a_file_is_no_line_of_its_own(record, name):
    (case,) = record.cases
    figures = tuple(msgspec.structs.replace(one, metric=name) for one in case.figures)
    record = msgspec.structs.replace(
        record, cases=(msgspec.structs.replace(case, figures=figures),)
    )

    lines = export.prometheus_text([record]).split("\n")
    assert all(re.match(r"$|# (HELP|TYPE) ddp_perf_\w+ |ddp_perf_\w+\{", line) for line in lines)


def test_a_message_has_one_line_for_an_event_and_no_link_of_a_name(record, name):
    info = record.info
    (figure, *_) = (one for one in record.cases[0].figures if one.verdict is not None)
    found = Regression(
        metric=figure.metric,
        state=State.OPEN,
        before=info,
        first=info,
        newest=info,
        after=None,
        red_sessions=1,
        unexpected_sessions=1,
        verdict=figure.verdict,
    )
    event = Event(kind=EventKind.NEW, case_id=name, session=info, regression=found)

    message = notification([event], report="")
    assert [len(one.text.splitlines()) for one in message.events] == [1]
    text = slack_text(message)
    assert text.count("<") == text.count(">") == 1
    assert re.search(r"<https://ci/[^|]*\|The session's job>", text)
    assert not _UNSEEN.search(text)
