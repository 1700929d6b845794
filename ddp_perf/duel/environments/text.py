"""The search between two environments as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from ddp_perf.core.verdict import PairedVerdict
from ddp_perf.duel.environments.probes import EnvironmentCulprit, Probe, ProbeEffect
from ddp_perf.duel.environments.run import EnvironmentSearch
from ddp_perf.render.tables import NARROWEST, plain_table, rendered, wrapped
from ddp_perf.render.units import ABSENT, counted, percent_change, short_percent, to_json

_MOST_NAMES = 4  # in a row of the table


def environments_json(result: EnvironmentSearch) -> str:
    """Return the result as JSON."""
    return to_json(result)


def environments_schema() -> dict[str, Any]:
    """Return the JSON Schema of the result."""
    return msgspec.json.schema(EnvironmentSearch)


def environments_text(result: EnvironmentSearch, width: int) -> str:
    """Return what differs, a row for each probe, and the culprits with how sure they are."""
    width = max(width, NARROWEST)
    paragraphs = [
        wrapped([f"{result.case_id}: {result.bad} against {result.good}"], width),
        wrapped(list(_differences(result)), width),
        rendered(_table(result), width) if result.search.probes else [],
        wrapped(list(_conclusion(result)), width),
    ]
    return "\n\n".join("\n".join(lines) for lines in paragraphs if lines)


def _differences(result: EnvironmentSearch) -> Iterator[str]:
    yield f"{counted(len(result.factors), 'difference')}: {'; '.join(result.factors)}"
    for line in result.fixed:
        yield f"not probed: {line}"


def _table(result: EnvironmentSearch) -> Any:
    table = plain_table()
    table.add_column("A with these of B", overflow="fold")
    for heading in ("effect", "change", "interval", "pairs"):
        table.add_column(heading, justify="right")
    every = max(len(probe.moved) + len(probe.known) for probe in result.search.probes)
    for probe in result.search.probes:
        verdict = probe.verdict
        table.add_row(
            _moved(probe, every),
            "does not run" if probe.failure is not None else probe.effect.value,
            _change(verdict),
            _interval(verdict),
            ABSENT if verdict is None else str(verdict.pairs),
        )
    return table


def _moved(probe: Probe, every: int) -> str:
    if len(probe.moved) + len(probe.known) == every and len(probe.moved) > 1:
        return "everything" if not probe.known else "the rest"
    names = [name.removeprefix("env:") for name in probe.moved]
    more = len(names) - _MOST_NAMES
    return ", ".join([*names[:_MOST_NAMES], *([f"{more} more"] if more > 0 else [])])


def _change(verdict: PairedVerdict | None) -> str:
    return ABSENT if verdict is None or verdict.ratio is None else percent_change(verdict.ratio)


def _interval(verdict: PairedVerdict | None) -> str:
    if verdict is None or verdict.interval is None:
        return ABSENT
    low, high = verdict.interval
    return f"{percent_change(low)} … {percent_change(high)}"


def _conclusion(result: EnvironmentSearch) -> Iterator[str]:
    search = result.search
    if not search.culprits:
        yield _nothing(result)
        return
    for culprit in search.culprits:
        yield _blame(culprit)
    yield (
        f"Probability that none is blamed falsely: at least {100 * result.confidence:.1f} %"
        f" ({counted(len(search.probes), 'probe')}, each false with at most"
        f" {short_percent(result.alpha)}); decided by {result.metric}."
    )
    if search.cleared:
        yield f"The rest has no effect above {short_percent(result.tolerance)}."
    elif not search.complete:
        yield "The budget is over. Run the same command again: it goes on from these probes."
    else:
        yield "Whether the rest has an effect, the probes did not decide."


def _nothing(result: EnvironmentSearch) -> str:
    search = result.search
    if not search.complete:
        return "The budget is over. Run the same command again: it goes on from these probes."
    if search.probes[0].effect is ProbeEffect.UNRESOLVED:
        why = search.probes[0].failure or "the pairs did not decide"
        return f"Undecided: A with everything of B gives no answer: {why}."
    rest = "; what cannot be moved may be: " + "; ".join(result.fixed) if result.fixed else ""
    return f"Nothing of B that can be moved to A makes it slower{rest}."


def _blame(culprit: EnvironmentCulprit) -> str:
    names = " and ".join(culprit.factors)
    if not culprit.minimal:
        return f"The cause is among: {'; '.join(culprit.factors)} ({_change(culprit.verdict)})."
    together = " together (less is not slower)" if len(culprit.factors) > 1 else ""
    along = f", with {', '.join(culprit.along)}, without which it does not work"
    after = f", after {' and '.join(culprit.known)}" if culprit.known else ""
    return (
        f"To blame: {names}{together}{along if culprit.along else ''}{after}:"
        f" {_change(culprit.verdict)} ({_interval(culprit.verdict)})."
    )
