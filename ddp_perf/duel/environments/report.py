"""The report of a search between two environments."""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Iterator

from ddp_perf.core.metric import metric_title
from ddp_perf.duel.environments.probes import EnvironmentCulprit, Probe, ProbeEffect
from ddp_perf.duel.environments.run import EnvironmentSearch
from ddp_perf.render.model import Cell, Column, NextStep, Note, Report, Status, Table, notes
from ddp_perf.render.units import ABSENT, change_range, counted, percent_change, short_percent

_WIDEST = 60  # columns of the names in a row
_COLUMNS = (
    Column(title="A with these of B", words=True),
    Column(title="effect", words=True),
    Column(title="change"),
    Column(title="interval"),
    Column(title="pairs"),
)


def build_environments(result: EnvironmentSearch) -> Report:
    """Return what a person reads of a search, finished or not."""
    search = result.search
    found = search.complete and bool(search.culprits)
    return Report(
        title="what makes B slower",
        verdict=_verdict(result),
        status=Status.GREEN if found else Status.UNDECIDED,
        about=notes(_compared(result)),
        headline=" ".join(map(_blame, search.culprits)) or _nothing(result),
        table=Table(label="probes", columns=_COLUMNS, rows=_rows(search.probes)),
        notes=(Note(text=_rest(result)),) if search.culprits else (),
        certainty=_certainty(result) if search.culprits else None,
        next=None if search.complete else _go_on(result),
        option="--json",
    )


def _verdict(result: EnvironmentSearch) -> str:
    search = result.search
    if search.complete and search.culprits:
        return "; ".join(" and ".join(culprit.factors) for culprit in search.culprits)
    return "nothing that can be moved" if search.complete and search.cleared else "undecided"


def _compared(result: EnvironmentSearch) -> Iterator[str]:
    yield f"{result.case_id}: B ({result.bad}) against A ({result.good})"
    yield f"{counted(len(result.factors), 'difference')}: {'; '.join(result.factors)}"
    for line in result.fixed:
        yield f"not probed: {line}"


def _rows(probes: tuple[Probe, ...]) -> tuple[tuple[Cell, ...], ...]:
    every = max((len(probe.moved) + len(probe.known) for probe in probes), default=0)
    return tuple(tuple(map(Cell, _row(probe, every))) for probe in probes)


def _row(probe: Probe, every: int) -> Iterator[str]:
    verdict = probe.verdict
    yield _moved(probe, every)
    yield "does not run" if probe.failure is not None else probe.effect.value
    yield ABSENT if verdict is None or verdict.ratio is None else percent_change(verdict.ratio)
    yield change_range(None if verdict is None else verdict.interval)
    yield ABSENT if verdict is None else str(verdict.pairs)


def _moved(probe: Probe, every: int) -> str:
    if len(probe.moved) + len(probe.known) == every and len(probe.moved) > 1:
        return "everything" if not probe.known else "the rest"
    names = ", ".join(name.removeprefix("env:") for name in probe.moved)
    return textwrap.shorten(names, _WIDEST, placeholder=" …")


def _blame(culprit: EnvironmentCulprit) -> str:
    assert culprit.verdict.ratio is not None  # it is slower
    change = percent_change(culprit.verdict.ratio)
    if not culprit.minimal:
        return f"The cause is among: {'; '.join(culprit.factors)} ({change})."
    names = " and ".join(culprit.factors)
    together = " together (less is not slower)" if len(culprit.factors) > 1 else ""
    along = f", with {', '.join(culprit.along)}, without which it does not work"
    after = f", after {' and '.join(culprit.known)}" if culprit.known else ""
    return (
        f"To blame: {names}{together}{along if culprit.along else ''}{after}:"
        f" {change} ({change_range(culprit.verdict.interval)})."
    )


def _nothing(result: EnvironmentSearch) -> str:
    search = result.search
    if not search.complete:
        return "Undecided: nothing is found yet."
    if search.probes[0].effect is ProbeEffect.UNRESOLVED:
        why = search.probes[0].failure or "the pairs did not decide"
        return f"Undecided: A with everything of B gives no answer: {why}."
    rest = "; what cannot be moved may be: " + "; ".join(result.fixed) if result.fixed else ""
    return f"Nothing of B that can be moved to A makes it slower{rest}."


def _rest(result: EnvironmentSearch) -> str:
    if result.search.cleared:
        return f"The rest has no effect above {short_percent(result.tolerance)}."
    return "Whether the rest has an effect, the probes did not decide."


def _certainty(result: EnvironmentSearch) -> str:
    probes = counted(len(result.search.probes), "probe")
    return (
        f"The probability that none is blamed falsely is at least {100 * result.confidence:.1f} %"
        f" ({probes} of the {metric_title(result.metric)}, each false with at most"
        f" {short_percent(result.alpha)})."
    )


def _go_on(result: EnvironmentSearch) -> NextStep:
    sides = ["--good-env", result.good, "--bad-env", result.bad]
    command = shlex.join(["ddp-perf", "bisect", *sides, "--case", result.case_id])
    return NextStep(why="go on from these probes", command=command)
