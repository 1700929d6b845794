"""The sentences of the work gate: one for each kind of change, in every report alike."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from ddp_perf.core.verdict import Outcome
from ddp_perf.core.work import Site, StepWork
from ddp_perf.render.model import Note
from ddp_perf.render.units import counted, prefixed_number, rounded_percent, short_number
from ddp_perf.work.values import Place, WorkChange, WorkVerdict, total_of

_UNITS = {"bytes", "FLOPs"}
MOST_LINES = 3  # edited ones that are named
_LEAST_SHARE = 0.0005  # below it a percentage is rounded to 0
_MOST_TIMES = 10  # as much: beyond it a percentage says nothing


def change_sentence(change: WorkChange) -> str:
    """Return a change with its numbers and its first place, without a full stop.

    ``+2 aten.clone (float32), +134 MB, in backward of layers.* (my_model.py:42 Block.forward)``
    """
    return f"{change_summary(change)}{_where(change)}"


def change_summary(change: WorkChange) -> str:
    """Return a change with its numbers, for a column beside its place."""
    if change.moved_from is not None:
        return f"{change.after:,} {change.what} moved from {change.moved_from} to {change.phase}"
    amounts = [_sentences[change.kind](change)]
    if change.bytes:
        amounts.append(_signed_size(change.bytes))
    if change.flops:
        amounts.append(f"{_sign(change.flops)}{prefixed_number(abs(change.flops))} FLOPs")
    text = ", ".join(amounts)
    return f"{text} ({change.detail})" if change.detail else text


def place_text(site: Site) -> str:
    """Return the line of a site: ``my_model.py:42 Block.forward``."""
    return f"{site.file}:{site.line} {site.function}".rstrip()


def edited_notes(lines: Sequence[Site]) -> list[Note]:
    """Return the first edited lines with their code."""
    return [
        Note(text=f"edited line: {place_text(site)}: {site.text}", source=site)
        for site in lines[:MOST_LINES]
    ]


def bytes_text(size: int) -> str:
    """Write bytes: ``4,096 bytes``, ``12.6 MB``, ``1,234 MB``."""
    if abs(size) < 1e5:
        return f"{size:,} bytes"
    megabytes = size / 1e6
    return f"{megabytes:,.0f} MB" if abs(megabytes) >= 100 else f"{short_number(megabytes)} MB"


def in_all(old: StepWork, new: StepWork) -> str:
    """Return the totals of two steps, first what changed most: ``671M → 893M FLOPs (+33 %), …``."""
    before, after = total_of(old), total_of(new)
    totals: tuple[tuple[int, int, Callable[[int], str], str], ...] = (
        (before.flops, after.flops, prefixed_number, "FLOPs"),
        (before.count, after.count, "{:,}".format, "operations"),
        (before.bytes, after.bytes, bytes_text, "moved"),
    )
    parts = []
    for then, now, written, what in totals:
        texts = [f"{_both(written(then), written(now))} {what}", *_percent(then, now)]
        parts.append((abs(now - then) / max(then, 1), " ".join(texts)))
    parts.sort(key=lambda part: -part[0])
    return ", ".join(text for _, text in parts)


def more_flops(old: StepWork, new: StepWork) -> str:
    """Return how many more FLOPs a step computes than before: ``, +33 % FLOPs``; else ""."""
    then, now = total_of(old).flops, total_of(new).flops
    if not then or now < (1 + _LEAST_SHARE) * then:
        return ""
    return f", +{rounded_percent(now / then - 1)} FLOPs"


def _percent(then: int, now: int) -> Iterator[str]:
    if then and then != now and now < _MOST_TIMES * then:
        yield f"({_sign(now - then)}{rounded_percent(abs(now / then - 1))})"


def _both(then: str, now: str) -> str:
    return now if then == now else f"{then} → {now}"


def verdict_lines(verdict: WorkVerdict, most: int | None = None) -> list[str]:
    """Return the verdict: its reason, the changed options, and its changes, each one a line.

    The first one names the edited line, or else the changed option: a summary shows no other.
    ``most`` is how many changes are shown; None: all.
    """
    parts = [verdict.outcome.value, _cause(verdict), verdict.reason]
    lines = [": ".join(part for part in parts if part)]
    lines += [f"changed option: {option}" for option in verdict.options]
    lines += [note.text for note in edited_notes(verdict.lines)]
    shown = verdict.changes[:most]
    lines += map(change_sentence, shown)
    if left := len(verdict.changes) - len(shown):
        lines.append(f"and {counted(left, 'more change')}")
    return lines


def _cause(verdict: WorkVerdict) -> str:
    """Return the likely cause of more or moved work that the reason does not name, or "".

    What another torch counts differently has none of these causes.
    """
    if verdict.outcome not in (Outcome.REGRESSION, Outcome.UNDECIDED):
        return ""
    if verdict.lines:
        place = place_text(verdict.lines[0])
        return "" if f"({place})" in verdict.reason else f"edited line {place}"
    return f"changed option {verdict.options[0]}" if verdict.options else ""


def _sign(number: int) -> str:
    return "+" if number >= 0 else "−"


def _signed_size(size: int) -> str:
    return f"{_sign(size)}{bytes_text(abs(size))}"


def _more(change: WorkChange) -> str:
    """Return the difference of the numbers, or the number if it did not change."""
    number = change.after - change.before
    return f"{_sign(number)}{abs(number):,}" if number else f"{change.after:,}"


def _more_of(noun: str, change: WorkChange) -> str:
    number = abs(change.after - change.before) or change.after
    return f"{_more(change)} {noun if number == 1 else f'{noun}s'}"


def _collective(change: WorkChange) -> str:
    if change.unit in _UNITS:
        return _from_to(change)
    if change.before == change.after:
        return f"{change.what}: {change.after:,} as before"
    return f"{_more(change)} {change.what}"


def _from_to(change: WorkChange) -> str:
    """Return both numbers with what they count."""
    if change.unit == "bytes":
        more = _signed_size(change.after - change.before)
        return f"{change.what} {bytes_text(change.before)} → {bytes_text(change.after)} ({more})"
    unit = f" {change.unit}" if change.unit else ""
    if change.unit == "FLOPs":
        then, now = prefixed_number(change.before), prefixed_number(change.after)
        return f"{change.what}: {then} → {now}{unit} after it"
    return f"{change.what} {change.before:,} → {change.after:,}"


_sentences: dict[str, Callable[[WorkChange], str]] = {
    "operation": lambda change: f"{_more(change)} {change.what}",
    "host_read": lambda change: f"{_more_of('host read', change)} by {change.what}",
    "collective": _collective,
    "memory": _from_to,
    "calls": lambda change: f"{_more_of('call', change)} of {change.what}",
    "autograd": lambda change: f"{_more(change)} {change.what} in the autograd graph",
    "compilation": lambda change: _more_of(change.what, change),
    "model": _from_to,
}


def _where(change: WorkChange) -> str:
    """Return the phase, the module and the line of the first place, and how many others."""
    text = f", in {change.phase}" if change.phase and change.moved_from is None else ""
    if not change.places:
        return text
    first: Place = change.places[0]
    module = first.site.module
    if not set(module) <= set("*."):  # a Sequential in a Sequential has no name
        text += f" of {module}" if text else f", in {module}"
    text += f" ({place_text(first.site)})"
    lines = {(place.site.file, place.site.line) for place in change.places}
    others = len(lines) - 1
    return f"{text} and {counted(others, 'other line')}" if others else text
