"""The page of a case: its verdict now, each metric over time, changes, regressions, sessions."""

from __future__ import annotations

import functools
from collections.abc import Iterator

from ddp_perf.core.metric import metric_title
from ddp_perf.core.verdict import Settled
from ddp_perf.history.chart import history_chart
from ddp_perf.history.records import HistoryPoint, SessionInfo
from ddp_perf.history.text import describe_change, figure_text, unit_of
from ddp_perf.history.trend import CaseHistory
from ddp_perf.render.chart import Chart
from ddp_perf.render.model import (
    Cell,
    Column,
    Note,
    Part,
    Plot,
    Report,
    Section,
    Status,
    Table,
    figures,
    notes,
    words,
)
from ddp_perf.render.units import ABSENT, change_range, counted, culprit_text, percent_change
from ddp_perf.site.links import commit_link, commits_link, job_link
from ddp_perf.site.regressions_page import regression_table
from ddp_perf.site.views import CaseView

_NOW = (
    *words("metric", "verdict"),
    *figures("newest", "change"),
    Column(title="99 % interval"),
    *words("why"),
)
_MOVES = (*words("metric", "change"), *words("between", "commits", "versions that changed"))
_SESSIONS = (
    *words("session", "commit"),
    *figures("step time ms", "its launches"),
    *words("verdict"),
    *figures("change"),
    Column(title="99 % interval"),
    *words("torch", "job"),
)
_SETTLED = (*words("session", "beside"), *figures("pairs"), *words("result"))


def case_page(view: CaseView) -> Report:
    """Return everything that the history has of a case."""
    status, word = view.standing
    first, last = view.main.series.sessions[0].session, view.info
    return Report(
        title=f"{view.case.case_id} on {view.case.accelerator}",
        verdict=word,
        status=status,
        headline=(
            f"{counted(len(view.main.series.sessions), 'session')} from {first.date[:10]} to"
            f" {last.date[:10]}; suite {last.suite}"
        ),
        about=notes([f"The newest session ran on {last.environment.host}, {_software(last)}."]),
        table=Table(label="the newest session", columns=_NOW, rows=tuple(_now(view))),
        sections=tuple(_sections(view)),
    )


def _software(info: SessionInfo) -> str:
    where = info.environment
    driver = f", driver {where.driver}" if where.driver else ""
    return f"torch {where.torch}{driver}, Python {where.python}"


def _now(view: CaseView) -> Iterator[tuple[Cell, ...]]:
    for point in view.newest:
        figure, verdict = point.figure, point.figure.verdict
        assert verdict is not None  # the view has judged ones
        yield (
            Cell(metric_title(figure.metric)),
            Cell(verdict.outcome.value, verdict.outcome.severity, Status.of(verdict.outcome)),
            Cell(figure_text(figure.metric, figure.value, unit=True), figure.value),
            Cell(ABSENT if verdict.ratio is None else percent_change(verdict.ratio), verdict.ratio),
            Cell(change_range(verdict.interval)),
            Cell(verdict.reason),
        )


def _sections(view: CaseView) -> Iterator[Section]:
    for metric, history in view.histories.items():
        plot = Plot(functools.partial(_charts, history))
        opened = history is view.main
        yield Section(title=metric_title(metric).capitalize(), parts=(plot,), opened=opened)
    moves = tuple(row for history in view.histories.values() for row in _moves(history))
    if moves:
        table = Table(label="changes", columns=_MOVES, rows=moves)
        yield Section(title="Steps and drifts", parts=(table,), opened=True)
    if view.regressions:
        table = regression_table([(view, one) for one in view.regressions], of_one_case=True)
        yield Section(title="Regressions", parts=(table,), opened=True)
    if settled := tuple(_settled(view)):
        table = Table(label="duels", columns=_SETTLED, rows=settled)
        yield Section(title="Settled beside the stored code", parts=(table,))
    yield Section(title="All sessions", parts=_all_sessions(view.main))


def _charts(history: CaseHistory) -> Iterator[Chart]:
    yield history_chart(history)


def _moves(history: CaseHistory) -> Iterator[tuple[Cell, ...]]:
    for found in history.ranges:
        before, after = found.before, found.after
        yield (
            Cell(metric_title(history.series.metric)),
            Cell(describe_change(found.change), found.change.ratio),
            Cell(f"{before.date[:10]} and {after.date[:10]}", before.date),
            Cell(commits_link(before, after)),
            Cell(", ".join(found.versions) or "none of the recorded ones"),
        )


def _settled(view: CaseView) -> Iterator[tuple[Cell, ...]]:
    for point in reversed(view.main.series.sessions):
        verdict = point.figure.verdict
        settled = verdict.settled if verdict else None
        if verdict is not None and settled is not None:
            yield (
                Cell(_when(point.session), _when(point.session)),
                Cell(settled.label or (settled.reference or ABSENT)[:10]),
                Cell(str(settled.pairs), settled.pairs),
                Cell(_result(verdict.outcome.value, settled)),
            )


def _result(outcome: str, settled: Settled) -> str:
    if settled.unchanged:
        return f"{outcome}: nothing that can run again changed"
    if settled.problem is not None:
        return f"{outcome}: {settled.problem}"
    lines = [f"{line.file}:{line.line}" for line in settled.lines[:1]]
    culprit = [culprit_text(settled.culprit)] if settled.culprit else []
    return "; ".join([outcome, *culprit, *lines, *settled.causes[:1]])


def _all_sessions(history: CaseHistory) -> tuple[Part, ...]:
    sound = {id(point) for point in history.series.sound()}
    rows = [
        _session(point, is_sound=id(point) in sound) for point in reversed(history.series.sessions)
    ]
    table = Table(label="sessions", columns=_SESSIONS, rows=tuple(rows))
    return (Note(text="The newest one comes first."), table)


def _session(point: HistoryPoint, *, is_sound: bool) -> tuple[Cell, ...]:
    figure, info, verdict = point.figure, point.session, point.figure.verdict
    word = verdict.outcome.value if verdict else "not judged"
    if info.injections:
        word = f"slowed on purpose: {', '.join(info.injections)}"
    elif not is_sound:
        word = figure.disturbance or word
    return (
        Cell(_when(info), _when(info)),
        Cell(commit_link(info)),
        Cell(figure_text(figure.metric, figure.value), figure.value),
        Cell(_launches(point)),
        Cell(word),
        Cell(percent_change(verdict.ratio), verdict.ratio)
        if verdict and verdict.ratio
        else Cell(ABSENT),
        Cell(change_range(verdict.interval if verdict else None)),
        Cell(info.environment.torch),
        Cell(job_link(info)),
    )


def _launches(point: HistoryPoint) -> str:
    values = point.figure.launches
    if not values:
        return ABSENT
    _, scale = unit_of(point.figure.metric)
    return f"{scale * min(values):.4g} to {scale * max(values):.4g}"


def _when(info: SessionInfo) -> str:
    return info.date[:16].replace("T", " ")
