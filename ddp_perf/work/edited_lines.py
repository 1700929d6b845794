"""The lines that were edited since the stored counts, and that do more than before.

An operation is counted where it happens, which is not always where the code was edited: a second
``module(tokens)`` doubles the work of every line of the model. A line that the stored version of
the code does not have is the edit itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ddp_perf.core.work import Site, StepWork
from ddp_perf.work.amounts import Amount, amounts_by_site
from ddp_perf.work.sites import match_sites

_PACKAGE = "ddp_perf/"


def edited_lines(
    old: StepWork, new: StepWork, *, package_differs: bool = False
) -> tuple[Site, ...]:
    """Return the new and edited lines that do more than the old ones in their places.

    The one with most additional FLOPs comes first, then bytes, then numbers of anything. A renamed
    line, which does as much as before, is none of them. A line of this package runs anew for an
    edit of the user's, too: it is returned only if the package differs, and no other line is there.
    """
    lines = _grown_lines(old, new)
    users = tuple(line for line in lines if not line.file.startswith(_PACKAGE))
    return users or (lines if package_differs else ())


def _grown_lines(old: StepWork, new: StepWork) -> tuple[Site, ...]:
    known = {(site.file, site.text) for site in old.sites}
    matched = match_sites(old, new)
    before = _all(old, matched.old)
    found: dict[tuple[str, str], tuple[Amount, Site]] = {}
    for site, now in _all(new, matched.new).items():
        line = site.file, site.text
        more, first = found.get(line, (Amount(), site))
        if line not in known:
            found[line] = more + now - before.get(site, Amount()), first
    grown = [
        ((more.flops, more.bytes, more.count), site)
        for more, site in found.values()
        if max(more.flops, more.bytes, more.count) > 0
    ]
    return tuple(site for _, site in sorted(grown, reverse=True))


def _all(work: StepWork, sites: Sequence[Site]) -> dict[Site, Amount]:
    """Return all that each site does, of whatever kind. ``sites`` stand for those of the work."""
    return amounts_by_site(("", sites[at], amount) for at, amount in _amounts(work)).get("", {})


def _amounts(work: StepWork) -> Iterator[tuple[int, Amount]]:
    for operation in work.operations:
        moved = operation.read + operation.written
        yield operation.site, Amount(operation.count, moved, operation.flops)
    for collective in work.collectives:
        yield collective.site, Amount(1, collective.bytes)
    for kept in work.kept:
        yield kept.site, Amount(0, max(kept.bytes, 0))
    for call in (*work.calls, *work.callers):
        yield call.site, Amount(call.count)
    if work.compilation is not None:
        for one in (*work.compilation.breaks, *work.compilation.recompilations):
            yield one.site, Amount(1)
