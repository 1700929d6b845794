"""Names that are markup, a formula or a command, and what is wrong where a medium shows one."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from typing import TypeAlias

import msgspec
import yaml

from ddp_perf.history.events import Event, EventKind
from ddp_perf.history.records import SessionRecord, record_of
from ddp_perf.history.standing import Regression, State
from ddp_perf.render.annotations import github_lines, gitlab_json
from ddp_perf.render.checkout import CHECKOUT
from ddp_perf.render.markdown import report_markdown
from ddp_perf.render.model import Note, Report, Section
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
    "a turn of direction": "a\u202eb\u2066c\u200fd",
    "a colour": "a\x1b[31mb\x1b]0;c\x07\x9b2J",
    "a label": 'a"} 1\nevil{b="c',
    "a row": 'a,"b"\r\nc | d | e',
}
Wrong: TypeAlias = Iterator[str]
_UNSEEN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200f\u202e\u2066]")
_LABEL = r'[a-z]+="(?:[^"\\\n]|\\["\\n])*"'
_SAMPLE = re.compile(
    rf"ddp_perf_\w+\{{{_LABEL}(?:,{_LABEL})*\}} \S+|# (?:HELP|TYPE) ddp_perf_\w+ .*|"
)


def _report(name: str) -> Report:
    """Return the report of a session in which every text is the name, and so is the output."""
    suites = [make_hostile_result(name)]
    report = build_session(suites, report_summary(suites, complete=True), after_session(suites))
    printed = Section(title="printed", parts=(Note(text=f"a\n{name}", kind="output"),))
    return msgspec.structs.replace(report, sections=(*report.sections, printed))


def _record(name: str) -> SessionRecord:
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

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: set[tuple[str, str]] = set()
        self.links: set[str | None] = set()
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found |= {(tag, name) for name, _ in attrs} | {(tag, "")}
        self.links |= {value for name, value in attrs if name in ("href", "src")}


def _unseen(text: str) -> Wrong:
    yield from (f"{found!r} is sent" for found in sorted(set(_UNSEEN.findall(text))))


def _page(name: str) -> Wrong:
    text = report_page(_report(name)).decode()
    page, plain = _Elements(text), _Elements(report_page(_report("plain")).decode())
    yield from (f"the element {one}" for one in page.found - plain.found)
    yield from (f"the link {one}" for one in page.links - plain.links)
    yield from _unseen(text)


def _comment(name: str) -> Wrong:
    comment = report_markdown(_report(name))
    elements = {tag for tag, _ in _Elements(comment).found}
    yield from (f"the element {one}" for one in elements - {"details", "summary", "pre"})
    interpreted = re.sub(r"<pre>.*?</pre>", "", comment, flags=re.DOTALL)
    yield from re.findall(r"(?<!\\)\]\(.*", interpreted)
    yield from re.findall(r"^\s*/.*", comment, re.MULTILINE)
    yield from _unseen(comment)


def _log(name: str) -> Wrong:
    text = report_text(_report(name), 80, whole=True)
    yield from re.findall(r"^\s*::.*|##\[.*|##vso\[.*", text, re.MULTILINE)
    yield from _unseen(text)


def _annotations(name: str) -> Wrong:
    lines = github_lines(_report(name), CHECKOUT)
    whole = re.compile(r"::(error|warning) title=[^:,\n]*::.*")
    yield from ("no line",) * (not lines)
    yield from (line for line in lines if not whole.fullmatch(line))
    yield from _unseen("".join(lines))
    if not json.loads(gitlab_json(_report(name))):
        yield "no finding of GitLab"


def _csv(name: str) -> Wrong:
    head, *rows = csv.reader(io.StringIO(export.history_csv([_record(name)]), newline=""))
    yield from (f"{len(row)} cells" for row in rows if len(row) != len(head))
    yield from (cell for row in rows for cell in row if cell.startswith(("=", "+", "@", "\t")))
    if not any(name in cell for row in rows for cell in row):
        yield "the name is another one"


def _prometheus(name: str) -> Wrong:
    record = _record(name)
    (case,) = record.cases
    figures = tuple(msgspec.structs.replace(one, metric=name) for one in case.figures)
    case = msgspec.structs.replace(case, figures=(*case.figures, *figures))
    text = export.prometheus_text([msgspec.structs.replace(record, cases=(case,))])
    yield from (line for line in text.split("\n") if not _SAMPLE.fullmatch(line))
    if "ddp_perf_step_time" not in text:
        yield "no sample"


def _json(name: str) -> Wrong:
    records = [_record(name)]
    texts = (export.bencher_json(records), export.action_benchmark_json(records))
    for text in (*texts, *export.otlp_lines(records).splitlines()):
        if json.dumps(name)[1:-1] not in json.dumps(json.loads(text)):
            yield f"the name is another one in {text[:40]}"


def _otava(name: str) -> Wrong:
    files = dict(export.otava_files([_record(name)]))
    yield from (file for file in files if not re.fullmatch(r"[\w.-]+", file))
    if not any(name in test for test in yaml.safe_load(files["otava.yaml"])["tests"]):
        yield "the name is another one"


def _message(name: str) -> Wrong:
    record = _record(name)
    verdict = next(one.verdict for one in record.cases[0].figures if one.verdict is not None)
    info = record.info
    found = Regression(
        metric="step_time",
        state=State.OPEN,
        before=info,
        first=info,
        newest=info,
        after=None,
        red_sessions=1,
        unexpected_sessions=1,
        verdict=verdict,
    )
    event = Event(kind=EventKind.NEW, case_id=name, session=info, regression=found)
    message = notification([event], report="")
    yield from (one.text for one in message.events if len(one.text.splitlines()) != 1)
    text = slack_text(message)
    link = re.search(r"<https://ci/[^|<>]*\|The session's job>", text)
    if link is None or text.count("<") != 1:
        yield text
    yield from _unseen(text)


MEDIA: dict[str, Callable[[str], Wrong]] = {
    "a page": _page,
    "a comment": _comment,
    "a job's log": _log,
    "annotations": _annotations,
    "CSV": _csv,
    "Prometheus": _prometheus,
    "JSON": _json,
    "Otava": _otava,
    "a message": _message,
}
