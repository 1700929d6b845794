"""The page of all regressions: open, acknowledged, and ended, and for how long each was red."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from ddp_perf.core.baseline import instant
from ddp_perf.core.metric import metric_title
from ddp_perf.history.records import SessionInfo
from ddp_perf.history.standing import Regression, State
from ddp_perf.render.model import Cell, Column, Report, Status, Table, figures, notes, words
from ddp_perf.render.units import ABSENT, counted, culprit_text, percent_change
from ddp_perf.site.links import case_link, commit_link, commits_link
from ddp_perf.site.views import CaseView, SiteViews

_STATES = {State.OPEN: Status.RED, State.ACKNOWLEDGED: Status.UNDECIDED}
_WHERE = (Column(title="case", words=True), Column(title="machine", words=True, filtered=True))
_WHAT = (
    Column(title="metric", words=True, filtered=True),
    Column(title="state", words=True, filtered=True),
    *figures("change"),
    *words("since"),
    Column(title="days", meaning="from its first red session to its end, or to the newest session"),
    *figures("red sessions"),
    *words("commits", "ended", "known"),
)


def regressions_page(views: SiteViews) -> Report:
    """Return the page of all regressions, the open ones first."""
    found = [(view, one) for view in views.cases for one in view.regressions]
    found.sort(key=lambda one: one[1].first.date, reverse=True)
    found.sort(key=lambda one: list(State).index(one[1].state))
    counts = Counter(one.state for _, one in found)
    opened = counts[State.OPEN]
    return Report(
        title="Regressions",
        verdict=counted(opened, "open regression") if opened else "No open regression",
        status=Status.RED if opened else Status.GREEN,
        headline=", ".join(f"{counts[state]} {state.value}" for state in State if counts[state])
        or "none so far",
        table=regression_table(found),
        notes=notes(
            [
                "A regression is open from its first red session on, until a session passes. It is"
                " fixed if its figure came back, and accepted if it stayed and became the level.",
            ]
        ),
    )


def regression_table(
    found: Sequence[tuple[CaseView, Regression]], *, of_one_case: bool = False
) -> Table:
    """Return a row for each regression."""
    rows = [
        (*(() if of_one_case else _where(view)), *_what(view, regression))
        for view, regression in found
    ]
    columns = _WHAT if of_one_case else (*_WHERE, *_WHAT)
    return Table(label="regressions", columns=columns, rows=tuple(rows))


def _where(view: CaseView) -> Iterator[Cell]:
    yield Cell(case_link(view), view.case.case_id)
    yield Cell(view.case.accelerator, view.case.accelerator)


def _what(view: CaseView, one: Regression) -> Iterator[Cell]:
    yield Cell(metric_title(one.metric), one.metric)
    yield Cell(one.state.value, list(State).index(one.state), _STATES.get(one.state, Status.GREEN))
    ratio = one.verdict.ratio
    yield Cell(ABSENT if ratio is None else percent_change(ratio), ratio)
    yield Cell(one.first.date[:10], one.first.date)
    days = _days(one.first, one.after or view.info)
    yield Cell(f"{days:.0f}", days)
    yield Cell(str(one.red_sessions), one.red_sessions)
    yield Cell(commits_link(one.before, one.first) if one.before else commit_link(one.first))
    yield Cell(one.after.date[:10] if one.after else ABSENT, one.after.date if one.after else None)
    yield Cell(_known(one))


def _days(first: SessionInfo, last: SessionInfo) -> float:
    begin, end = (instant(one.date) for one in (first, last))
    return (end - begin).total_seconds() / 86400


def _known(one: Regression) -> str:
    """Return what people and searches said of it, or the reason of its verdict."""
    if one.verdict.acknowledged is not None:
        return f'acknowledged: "{one.verdict.acknowledged}"'
    settled = one.verdict.settled
    if settled is not None and settled.culprit is not None:
        return culprit_text(settled.culprit)
    return one.verdict.reason
