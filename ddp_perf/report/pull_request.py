"""The comment of a pull request: its counts and its duel as one report, the worst of both first."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from ddp_perf.errors import ExitCode
from ddp_perf.render.checkout import Checkout
from ddp_perf.render.markdown import markdown_escaped, report_markdown
from ddp_perf.render.model import NextStep, Note, Report, Section, Status, Summary, Table

MARKER = "<!-- ddp-perf -->"  # the first line: a job finds the comment that it updates by it
# The ends of a session that ran all of its tests.
ENDS: dict[int, tuple[str, Status]] = {
    ExitCode.GREEN: ("green", Status.GREEN),
    ExitCode.RED: ("red", Status.RED),
    ExitCode.NO_TESTS: ("no test was selected", Status.GREEN),
    ExitCode.UNDECIDED: ("undecided", Status.UNDECIDED),
}


def pull_request_markdown(
    codes: Mapping[str, int],
    duel: Report | None,
    work: Report | None,
    checkout: Checkout,
    run: str = "",
) -> str:
    """Return the comment. ``codes`` are the exit codes of the steps by name.

    ``run`` is the address of the job's artifacts, which have the pages; empty: it has none.
    """
    text = report_markdown(build_pull_request(codes, duel, work), checkout)
    pages = " and ".join(one.page for one in (duel, work) if one is not None)
    where = f"[this run]({run})" if run else "the artifacts"
    below = f"\n{markdown_escaped(pages)}: in {where}\n" if pages else ""
    return f"{MARKER}\n{text}{below}"


def build_pull_request(
    codes: Mapping[str, int], duel: Report | None, work: Report | None
) -> Report:
    """Return one report of the duel and of the counts, of which None left no result."""
    steps = {"duel": duel, "counts": work}
    ended = [
        f"{name}: {ENDS[code][0] if code in ENDS else f'exit code {code}'}"
        + (f" ({report.headline})" if (report := steps.get(name)) is not None else "")
        for name, code in codes.items()
    ]
    found = [one for one in (duel, work) if one is not None]
    lead = min(found, key=lambda one: list(Status).index(one.status), default=None)
    status = _status(codes, lead)
    whole = Report(
        title="pull request",
        verdict=status.value,
        status=status,
        headline="; ".join(ended),
        table=Table(columns=(), rows=()),
    )
    if lead is None:
        return whole
    others = [one for one in found if one is not lead]
    return msgspec.structs.replace(
        lead,
        status=status,
        headline=whole.headline,
        summary=_summary(status, lead, others),
        sections=(*lead.sections, *(part for one in others for part in _folded(one))),
        next=next((step for one in (lead, *others) if (step := _next(one, lead))), None),
    )


def _status(codes: Mapping[str, int], lead: Report | None) -> Status:
    """Return the worst status of the steps.

    A session that did not end is undecided, unless what it left is red; so are steps without tests.
    """
    if lead is not None and lead.status is Status.RED:
        return Status.RED
    if set(codes.values()) == {ExitCode.NO_TESTS}:
        return Status.UNDECIDED
    ends = [ENDS[code][1] if code in ENDS else Status.UNDECIDED for code in codes.values()]
    return min(ends, key=list(Status).index)


def _summary(status: Status, lead: Report, others: list[Report]) -> Summary:
    """Return that of the worst report, with the picture of the duel and the causes of either."""
    own = [one.summary for one in (lead, *others) if one.summary is not None]
    first = lead.summary or Summary(verdict=lead.verdict, worst=lead.headline)
    if lead.summary is None and own and lead.status is Status.GREEN:  # no case was touched
        first = own[0]
    order = list(Status).index
    if order(lead.status) > order(status):  # a session was red, or did not end, for another reason
        first = Summary(verdict=status.value, worst="see the log of the job")
    elif lead.status is not status:  # as few undecided cases as a strict session allows
        both = f"{status.value}, but {first.verdict}"
        first = msgspec.structs.replace(first, verdict=both)
    return msgspec.structs.replace(
        first,
        causes=next((_causes(one, first.case) for one in own if one.causes), ()),
        picture=next((one.picture for one in own if one.picture), ""),
    )


def _causes(summary: Summary, case: str) -> tuple[Note, ...]:
    """Return the causes of a summary below the name of a case: those of another name theirs."""
    if summary.case in ("", case):
        return summary.causes
    return tuple(
        msgspec.structs.replace(note, text=f"{summary.case}: {note.text}")
        for note in summary.causes
    )


def _next(report: Report, lead: Report) -> NextStep | None:
    """Return the next command of a report; if it is about another case, by the report's name."""
    step, cases = report.next, {one.summary and one.summary.case for one in (report, lead)}
    if step is None or report is lead or len(cases) == 1:
        return step
    return msgspec.structs.replace(step, why=f"{report.title}: {step.why}")


def _folded(report: Report) -> list[Section]:
    """Return a report as sections of another one: its table, then its sections."""
    table = Section(
        title=report.title,
        verdict=report.headline,
        status=report.status,
        parts=(report.table, *report.notes),
    )
    named = (
        msgspec.structs.replace(one, title=f"{report.title}: {one.title}")
        for one in report.sections
    )
    return [table, *named]
