"""The comment of a pull request: its counts and its duel as one report, the worst of both first."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from ddp_perf.errors import ExitCode
from ddp_perf.render.checkout import Checkout
from ddp_perf.render.markdown import markdown_escaped, report_markdown
from ddp_perf.render.model import Report, Section, Status, Summary, Table

MARKER = "<!-- ddp-perf -->"  # the first line: a job finds the comment that it updates by it
# The ends of a session that ran all of its tests.
_ENDS: dict[int, tuple[str, Status]] = {
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
    run: str | None = None,
) -> str:
    """Return the comment. ``codes`` are the exit codes of the steps by name.

    ``run`` is the address of the job, which has the pages.
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
        f"{name}: {_ENDS[code][0] if code in _ENDS else f'exit code {code}'}"
        + (f" ({report.headline})" if (report := steps.get(name)) is not None else "")
        for name, code in codes.items()
    ]
    status = min((_status(code) for code in codes.values()), key=list(Status).index)
    found = [one for one in (duel, work) if one is not None]
    lead = min(found, key=lambda one: list(Status).index(one.status), default=None)
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
        next=next((one.next for one in (lead, *others) if one.next is not None), None),
    )


def _status(code: int) -> Status:
    """Return the status of an exit code. A session that did not end has shown nothing."""
    return _ENDS[code][1] if code in _ENDS else Status.UNDECIDED


def _summary(status: Status, lead: Report, others: list[Report]) -> Summary:
    """Return that of the worst report, with the picture of the duel and the causes of either."""
    own = [one.summary for one in (lead, *others) if one.summary is not None]
    first = own[0] if own else Summary(verdict=lead.verdict, worst=lead.headline)
    order = list(Status).index
    if order(lead.status) > order(status):  # a session was red, or did not end, for another reason
        first = Summary(verdict=status.value, worst="see the log of the job")
    elif lead.status is not status:  # as few undecided cases as a strict session allows
        both = f"{status.value}, but {first.verdict}"
        first = msgspec.structs.replace(first, verdict=both)
    return msgspec.structs.replace(
        first,
        causes=next((one.causes for one in own if one.causes), ()),
        picture=next((one.picture for one in own if one.picture), ""),
    )


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
