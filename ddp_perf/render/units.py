"""Durations, numbers, shares, changes and culprits as text, and values as JSON."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from ddp_perf.core.verdict import Culprit
from ddp_perf.errors import ConfigError

ABSENT = "–"  # in a table: the figure was not measured, or does not apply
_SECONDS = {"s": 1, "m": 60, "h": 3600}
# From, unit, prefix.
_PREFIXES = ((1e12, 1e12, "T"), (1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e4, 1e3, "k"))
_HISSING = ("s", "x", "ch", "sh")  # the plural of such a noun ends in "es"


def parse_duration(text: str) -> float:
    """Return the seconds of ``90s``, ``10m`` or ``1.5h``.

    Raises ConfigError, with the expected form, for any other text and for a duration of 0.
    """
    match = re.fullmatch(r"([0-9]{1,6}(?:\.[0-9]{1,3})?)([smh])", text)
    seconds = float(match[1]) * _SECONDS[match[2]] if match else 0.0
    if seconds == 0:
        raise ConfigError(f"{text!r} is not a duration above 0, as in 90s, 10m or 1h")
    return seconds


def describe_duration(seconds: float) -> str:
    """Write a duration as precisely as an estimate is: ``90 s``, ``10 min``."""
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def milliseconds(seconds: float, digits: int = 2) -> str:
    """Write seconds in milliseconds, without the unit: ``1,234.50``."""
    return f"{seconds * 1e3:,.{digits}f}"


def percent(share: float | None, digits: int = 1) -> str:
    """Write a share with a fixed number of digits: ``4.0%``. An absent one is a dash."""
    return ABSENT if share is None else f"{share:.{digits}%}"


def short_percent(share: float) -> str:
    """Write a share with at most three significant digits: ``4 %``, ``0.25 %``."""
    return f"{100 * share:.3g} %"


def rounded_percent(share: float) -> str:
    """Write a share as people say it: ``24 %``, ``4.2 %``."""
    return f"{100 * share:.{0 if share >= 0.1 else 1}f} %"


def at_most_percent(share: float) -> str:
    """Write an upper bound, rounded up: ``4.1 %``, ``23 %``."""
    digits = 0 if share >= 0.1 else 1
    units = math.ceil(round(100 * share * 10**digits, 6))
    return f"{units / 10**digits:.{digits}f} %"


def percent_change(ratio: float, digits: int = 1) -> str:
    """Write a ratio as a change: 1.05 is ``+5.0 %``."""
    return f"{100 * (ratio - 1):+.{digits}f} %"


def change_range(ratios: tuple[float, float] | None) -> str:
    """Write an interval of a ratio as changes: ``+4.9 to +5.6 %``. An absent one is a dash."""
    if ratios is None:
        return ABSENT
    low, high = (100 * (ratio - 1) for ratio in ratios)
    return f"{low:+.1f} to {high:+.1f} %"


def percent_range(low: float, high: float) -> str:
    """Write an interval of a share: ``66 to 100 %``."""
    return f"{100 * low:.0f} to {100 * high:.0f} %"


class Figure(Protocol):
    """A figure with its interval. The ends are None if its spread is not known."""

    @property
    def value(self) -> float: ...

    @property
    def low(self) -> float | None: ...

    @property
    def high(self) -> float | None: ...


def with_interval(figure: Figure | None, factor: float = 1, unit: str = "") -> str:
    """Write a figure, times ``factor``, with its unit and interval: ``20 µs (18–22)``."""
    if figure is None:
        return ABSENT
    text = f"{short_number(factor * figure.value)} {unit}".rstrip()
    if figure.low is None or figure.high is None:
        return text
    low, high = (short_number(factor * end) for end in (figure.low, figure.high))
    return f"{text} ({low}–{high})"


def short_number(value: float) -> str:
    """Write a number with three significant digits, and never as a power of ten if it is large."""
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def prefixed_number(value: float) -> str:
    """Write a number with three significant digits and a prefix: ``0.45``, ``12.3k``, ``2M``."""
    for least, unit, prefix in _PREFIXES:
        if abs(value) >= least:
            return f"{value / unit:.3g}{prefix}"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def without_figures(text: str) -> str:
    """Return a text by which the same sentence with other figures is found."""
    return re.sub(r"\d[\d.,]*", "#", text)


def counted(count: int, noun: str) -> str:
    """Write a number of things: ``1 case``, ``2 cases``, ``2 launches``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}{_plural_ending(noun)}"


def _plural_ending(noun: str) -> str:
    return "es" if noun.endswith(_HISSING) else "s"


def change_text(name: str, before: object, after: object) -> str:
    """Write a change with both values: ``torch 2.12 → 2.13``. None is written as ``unset``."""
    return f"{name} {_or_unset(before)} → {_or_unset(after)}"


def field_changes(
    before: Mapping[str, Any], after: Mapping[str, Any], names: Iterable[str] | None = None
) -> list[str]:
    """Return the text of each field that differs.

    ``names`` are the fields to compare, in order; by default all of both mappings, sorted.
    """
    return [
        change_text(name, before.get(name), after.get(name))
        for name in (sorted(before.keys() | after.keys()) if names is None else names)
        if before.get(name) != after.get(name)
    ]


def _or_unset(value: object) -> object:
    return "unset" if value is None else value


def to_json(value: object) -> str:
    """Return a struct, or a collection of structs, as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(value), indent=1).decode()


def layout_text(ranks: int, ranks_per_node: int | None) -> str:
    """Return ranks by node: ``2×8``; only their number if one node has them all.

    The last of several nodes may have fewer. None: the nodes are unknown.
    """
    if ranks_per_node is None or ranks <= ranks_per_node:
        return str(ranks)
    if ranks % ranks_per_node:
        return f"{ranks} on {-(-ranks // ranks_per_node)}"
    return f"{ranks // ranks_per_node}×{ranks_per_node}"


# A culprit in one line.


_SHORT = 12  # digits of a commit, for people


def culprit_text(culprit: Culprit) -> str:
    """Write a culprit: ``commit 1a2b3c4d5e6f "Fuse the loss" by A (98 %): +12.0 % (10.1 to …)``."""
    if culprit.ratio is None or culprit.interval is None:
        return f"{_named(culprit)}: {culprit.why}"
    low, high = (100 * (end - 1) for end in culprit.interval)
    interval = f"{low:.1f} to {high:.1f} %"
    return (
        f"{_named(culprit)} ({_chance(culprit.probability)}): {percent_change(culprit.ratio)}"
        f" ({interval})"
    )


def _named(culprit: Culprit) -> str:
    if culprit.kind != "commit":
        return f"{culprit.kind} {culprit.name}"
    return f'commit {culprit.name[:_SHORT]} "{culprit.title}" by {culprit.author}'


def _chance(probability: float) -> str:
    """Write a probability. Launches are never certain, whatever the rounding."""
    return "> 99 %" if probability > 0.99 else f"{100 * probability:.0f} %"


# The names of cases.


def short_names(ids: Iterable[str]) -> dict[str, str]:
    """Return, by id, a name that fits a narrow column: the id without the parts that all share.

    The ids keep their full names if there is only one, or if short ones are empty or not unique.
    """
    parts = {case_id: case_id.split("-") for case_id in ids}
    shared = set.intersection(*map(set, parts.values())) if len(parts) > 1 else set()
    names = {
        case_id: "-".join(part for part in row if part not in shared)
        for case_id, row in parts.items()
    }
    unique = len(set(names.values())) == len(names)
    return names if unique and all(names.values()) else {case_id: case_id for case_id in parts}


def suite_names(keys: Sequence[tuple[str, str]]) -> list[str]:
    """Return a name for each suite and id: the id, after the suite if there are several.

    An id is unique in its suite alone.
    """
    several = len({suite for suite, _ in keys}) > 1
    return [f"{suite}: {case_id}" if several else case_id for suite, case_id in keys]
