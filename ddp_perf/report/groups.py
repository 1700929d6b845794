"""Cases of which the same is said: it is said once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ddp_perf.render.units import counted, without_figures

_MOST_NAMES = 2  # of cases that are listed


def alike_lines(
    texts: Iterable[tuple[str, str]], of: int, *, key: Callable[[str], str] = without_figures
) -> list[str]:
    """Return a line for each sentence, with the cases that it is about.

    ``texts`` are pairs of a case and a sentence; those with one ``key`` are one. ``of`` is the
    number of all cases.
    """
    groups: dict[str, list[tuple[str, str]]] = {}
    for name, text in texts:
        groups.setdefault(key(text), []).append((name, text))
    lines = []
    for members in groups.values():
        first = members[0][1]
        alike = all(text == first for _, text in members)
        lines.append(f"{cases_text([name for name, _ in members], of, alike=alike)}: {first}")
    return lines


def cases_text(names: Sequence[str], of: int, *, alike: bool) -> str:
    """Return the names, or their number, with the one that the figures are of if they differ."""
    figures = "" if alike else f" (figures of {names[0]})"
    if len(names) <= _MOST_NAMES:
        return f"{' and '.join(names)}{figures}"
    every = "all " if len(names) == of else ""
    return f"{every}{counted(len(names), 'case')}{figures}"
