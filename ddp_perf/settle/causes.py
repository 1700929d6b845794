"""The differences of a slower case from the reference, in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ddp_perf.duel.values import CaseDuel
from ddp_perf.render.units import counted
from ddp_perf.work.changes import grows
from ddp_perf.work.text import MOST_LINES, change_sentence, place_text

_MOST_CHANGES = 3


def causes_of(one: CaseDuel, changed: Sequence[str]) -> tuple[str, ...]:
    """Return the edited lines, the options, the structure and the work that differ.

    ``changed`` are the lines that differ since the reference. They are named where counts show no
    line that does more, as of a step that only waits.
    """
    return tuple(_causes(one, changed))


def _causes(one: CaseDuel, changed: Sequence[str]) -> Iterator[str]:
    yield from (f"edited line: {place_text(site)}: {site.text}" for site in one.lines[:MOST_LINES])
    if not one.lines:
        yield from (f"changed line: {line}" for line in changed[:MOST_LINES])
        if len(changed) > MOST_LINES:
            yield f"and {counted(len(changed) - MOST_LINES, 'further changed line')}"
    yield from (f"changed option: {option}" for option in one.options)
    if one.structure is not None:
        yield f"structure: {one.structure}"
    yield from (
        f"{'more' if grows(change) else 'other'} work: {change_sentence(change)}"
        for change in (one.work or ())[:_MOST_CHANGES]
    )
