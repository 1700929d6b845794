"""The message about what one session changed: as a value, and as text for Slack."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from ddp_perf.core.metric import is_target, metric_title
from ddp_perf.history.events import Event, EventKind
from ddp_perf.history.records import SessionInfo
from ddp_perf.history.standing import Regression
from ddp_perf.render.units import change_range, counted, culprit_text, percent_change
from ddp_perf.render.visible import visible

SCHEMA_VERSION = 1
_MOST_LINES = 10
_MOST_TEXT = 200  # characters of the reason of an exact metric, whose change has no figure


class NotifiedEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One event. ``ratio`` is as in a verdict: 1.05 is 5 % slower, and ``interval`` is its own."""

    event: EventKind
    suite: str
    machine: str  # the key that names the baseline file
    case: str
    metric: str
    ratio: float | None  # of the newest red session; None: the metric is exact
    interval: tuple[float, float] | None
    before: str | None  # commit of the last session that was not red
    commit: str | None  # of the first red session
    since: str  # date of the first red session, ISO 8601, UTC
    red_sessions: int
    culprit: str | None  # that the second stage found
    text: str  # all of it, in one line


class Notification(msgspec.Struct, frozen=True, kw_only=True):
    """The events of one session, the worst first."""

    schema_version: int = SCHEMA_VERSION
    title: str
    date: str  # of the session, ISO 8601, UTC
    host: str
    commit: str | None
    branch: str | None
    link: str  # address of the CI job, or the path of the report on the host; empty: neither
    events: tuple[NotifiedEvent, ...]


def notification(events: Sequence[Event], *, report: str) -> Notification:
    """Return the message about these events of one session, of which there is at least one.

    ``report`` is the path of its report, or empty.
    """
    session = events[0].session
    return Notification(
        title=_title(events),
        date=session.date,
        host=session.environment.host,
        commit=session.environment.commit,
        branch=session.environment.branch,
        link=session.job or report,
        events=tuple(map(_notified, events)),
    )


def slack_text(message: Notification) -> str:
    """Return the message in Slack's mrkdwn."""
    lines = [f"• {_escaped(one.text)}" for one in message.events[:_MOST_LINES]]
    more = len(message.events) - len(lines)
    if more:
        lines.append(f"• and {more} more")
    return "\n".join([f"*{_escaped(message.title)}*", _where(message), *lines, *_link(message)])


def _title(events: Sequence[Event]) -> str:
    count = Counter(event.kind for event in events)
    kinds = ", ".join(f"{count[kind]} {kind.value}" for kind in EventKind if count[kind])
    return f"Training performance: {kinds}"


def _notified(event: Event) -> NotifiedEvent:
    found, session = event.regression, event.session
    verdict = found.verdict
    culprit = None if verdict.settled is None else verdict.settled.culprit
    return NotifiedEvent(
        event=event.kind,
        suite=session.suite,
        machine=session.environment.accelerator_key,
        case=event.case_id,
        metric=found.metric,
        ratio=verdict.ratio,
        interval=verdict.interval,
        before=None if found.before is None else found.before.environment.commit,
        commit=found.first.environment.commit,
        since=found.first.date,
        red_sessions=found.red_sessions,
        culprit=None if culprit is None else culprit_text(culprit),
        text=_text(event, None if culprit is None else culprit_text(culprit)),
    )


def _text(event: Event, culprit: str | None) -> str:
    found = event.regression
    was = "was " if event.kind is EventKind.FIXED else ""
    parts = [
        f"{event.kind.value}: {event.case_id} of {event.session.suite}:"
        f" {metric_title(found.metric)} {was}{_change(found)}",
        _range(found),
    ]
    if event.kind is not EventKind.NEW:
        parts.append(f"{counted(found.red_sessions, 'red session')} since {found.first.date[:10]}")
    if found.after is not None:
        parts.append(f"{event.kind.value} with commit {_commit(found.after)}")
    if culprit is not None:
        parts.append(f"found: {culprit}")
    return " ".join(", ".join(parts).split())


def _change(found: Regression) -> str:
    verdict = found.verdict
    if verdict.ratio is None:
        reason = verdict.reason.partition("\n")[0]
        cut = f"{reason[:_MOST_TEXT]}…" if len(reason) > _MOST_TEXT else reason
        return f"missed ({cut})" if is_target(found.metric) else f"differs ({cut})"
    change = percent_change(verdict.ratio)
    return change if verdict.interval is None else f"{change} ({change_range(verdict.interval)})"


def _range(found: Regression) -> str:
    first = _commit(found.first)
    if found.before is None:
        return f"commit {first}"
    before = _commit(found.before)
    return f"commit {before} → {first}" if before != first else f"commit {first} as before"


def _commit(session: SessionInfo) -> str:
    return session.environment.commit or "unknown"


def _where(message: Notification) -> str:
    machines = dict.fromkeys(event.machine for event in message.events)
    branch = "" if message.branch is None else f" of {message.branch}"
    commit = message.commit or "unknown"
    return _escaped(f"{message.host} ({', '.join(machines)}), commit {commit}{branch}")


def _link(message: Notification) -> list[str]:
    link = _escaped(message.link).replace("|", "%7C")
    if "://" in message.link:
        return [f"<{link}|The session's job>"]
    return [f"Report: {link}"] if link else []


def _escaped(text: str) -> str:
    """Replace the three characters that Slack's mrkdwn reserves, and what no reader sees."""
    return visible(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
