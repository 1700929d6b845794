"""The message about a session: a line for each event, and no more than a reader takes in."""

from __future__ import annotations

import json

import msgspec

from ddp_perf.core.verdict import Outcome, Settled
from ddp_perf.history.events import events
from ddp_perf.render.units import to_json
from ddp_perf.report.notification import notification, slack_text
from tests.builders import make_culprit
from tests.recorded_sessions import LEVEL, SLOW, make_judged_series

GOOD, RED, STAYED = (LEVEL, Outcome.PASS), (SLOW, Outcome.REGRESSION), (SLOW, Outcome.PASS)
JOB = "https://ci.example.com/job?a=1&b=2"
CULPRIT = make_culprit(
    name="3" * 40, title="Fuse the <loss> & the head", author="A", ratio=1.2, interval=(1.18, 1.22)
)


def found(*sessions, job="", **changes):
    """Return the events of the last of these sessions."""
    series = make_judged_series(*sessions, branch=lambda _: "main", **changes)
    last = msgspec.structs.replace(series.sessions[-1].session, job=job)
    return events([series], last)


def with_culprit(event):
    settled = Settled(reference=None, culprit=CULPRIT)
    verdict = msgspec.structs.replace(event.regression.verdict, settled=settled)
    regression = msgspec.structs.replace(event.regression, verdict=verdict)
    return msgspec.structs.replace(event, regression=regression)


def test_the_texts_of_all_events(file_regression):
    each = [
        *map(with_culprit, found(GOOD, RED, job=JOB)),
        *found(RED, commit=lambda _: None),
        *found(GOOD, RED, commit=lambda _: "aaaaaaaaaaaa"),
        *found(GOOD, RED, RED),
        *found(GOOD, RED, RED, GOOD),
        *found(GOOD, RED, STAYED),
        *found(GOOD, RED, GOOD, metric="structure"),
    ]

    text = slack_text(notification(each, report=""))

    file_regression.check(f"{text}\n", extension=".txt", encoding="utf-8")


def test_the_json_of_an_event(file_regression):
    message = notification([with_culprit(*found(GOOD, RED))], report="/nightly/index.html")

    file_regression.check(f"{to_json(message)}\n", extension=".json", encoding="utf-8")


def test_ten_lines_and_the_number_of_the_others():
    (one,) = found(GOOD, RED)
    each = [msgspec.structs.replace(one, case_id=f"case{number}") for number in range(12)]

    lines = slack_text(notification(each, report="")).splitlines()
    ten = slack_text(notification(each[:10], report="")).splitlines()

    assert [line for line in lines if "case" in line] == lines[2:12]
    assert lines[12:] == ["• and 2 more"]
    assert ten == [lines[0].replace("12", "10"), *lines[1:12]]
    assert len(json.loads(to_json(notification(each, report="")))["events"]) == 12


def test_the_link_is_the_job_or_else_the_report():
    (in_job,), (local,) = found(GOOD, RED, job=JOB), found(GOOD, RED)

    assert notification([in_job], report="/r/index.html").link == JOB
    assert slack_text(notification([in_job], report="")).endswith(
        "\n<https://ci.example.com/job?a=1&amp;b=2|The session's job>"
    )
    assert slack_text(notification([local], report="/r/index.html")).endswith(
        "\nReport: /r/index.html"
    )
    assert "Report" not in slack_text(notification([local], report=""))


def test_a_long_reason_of_an_exact_metric_is_cut():
    (event,) = found(RED, metric="structure")
    verdict = msgspec.structs.replace(event.regression.verdict, reason="x" * 999 + "\nmore")
    regression = msgspec.structs.replace(event.regression, verdict=verdict)

    message = notification([msgspec.structs.replace(event, regression=regression)], report="")

    assert f"structure differs ({'x' * 200}…), " in message.events[0].text
