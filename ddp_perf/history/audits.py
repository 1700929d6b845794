"""The audits of a gate in words: how many of the hidden slow-downs it found, by their size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ddp_perf.core.gate_audit import GateAudit
from ddp_perf.render.units import counted
from ddp_perf.stats.share import share_found

_BINS = ((0.01, 0.03), (0.03, 0.05), (0.05, 0.10))  # each without its end, but the last
_NEWEST = 30  # audits of one size: older ones were of another code and machine


AUDIT_MEANING = (
    "An audit ends a session: launches of one case that were slowed by a size that nobody knows, or"
    " not at all, and are judged as the session is. They are no session, and change no verdict."
)


def audit_lines(audits: Sequence[GateAudit]) -> list[str]:
    """Return a line for each accelerator and size that has audits. ``audits`` are oldest first."""
    keys = sorted({audit.accelerator for audit in audits})
    return [
        f"audits of the gate on {key}: {line}"
        for key in keys
        for line in _lines([audit for audit in audits if audit.accelerator == key])
    ]


def audit_sentence(audit: GateAudit) -> str:
    """Return what one audit hid, and what the gate called it."""
    hidden = f"slowed by {_percent(audit.size)} % in secret" if audit.size else "not slowed"
    by = {"sessions": "stored sessions", "pairs": "pairs of launches"}[audit.stage]
    return (
        f"audit of the gate: {audit.case_id} was {hidden}: {audit.outcome.value}"
        f"{_found(audit)}, by {by}, in {audit.seconds:.0f} s (seed {audit.seed})"
    )


def _lines(audits: Sequence[GateAudit]) -> Iterator[str]:
    for place, (low, high) in enumerate(_BINS):
        last = place == len(_BINS) - 1
        within = [one for one in audits if low <= one.size < high or (last and one.size == high)]
        if newest := within[-_NEWEST:]:
            sizes = f"{_percent(low)} to {_percent(high)} %"
            what = f"{counted(len(newest), 'hidden slow-down')} of {sizes}"
            yield f"of the last {what}, {_share(newest, 'found')}; {_tolerances(newest)}"
    if newest := [one for one in audits if not one.size][-_NEWEST:]:
        what = counted(len(newest), "hidden nothing")
        yield f"of the last {what}, {_share(newest, 'called slower')}"


def _share(audits: Sequence[GateAudit], done: str) -> str:
    share = share_found(sum(audit.is_found for audit in audits), len(audits))
    low, high = (f"{100 * end:.0f}" for end in share.interval)
    verb = "was" if share.found == 1 else "were"
    return f"{share.found} {verb} {done} (95 % interval {low} to {high} %)"


def _tolerances(audits: Sequence[GateAudit]) -> str:
    """Return the tolerances of the cases: a slow-down below its own is not meant to be red."""
    low, high = (_percent(bound([one.tolerance for one in audits])) for bound in (min, max))
    tolerance = f"their tolerance is {low if low == high else f'{low} to {high}'} %"
    below = sum(audit.size < audit.tolerance for audit in audits)
    return f"{tolerance}, and {below} of them {'is' if below == 1 else 'are'} below it"


def _found(audit: GateAudit) -> str:
    if audit.ratio is None:
        return ""
    text = f", {100 * (audit.ratio - 1):+.1f} %"
    if audit.interval is None:
        return text
    low, high = (f"{100 * (end - 1):+.1f}" for end in audit.interval)
    return f"{text} ({low} to {high} %)"


def _percent(share: float) -> str:
    return f"{100 * share:.3g}"
