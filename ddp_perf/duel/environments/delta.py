"""Delta debugging: the smallest set of changes that causes a failure.

``ddmin`` of Zeller & Hildebrandt, "Simplifying and Isolating Failure-Inducing Input", IEEE
Transactions on Software Engineering 28 (2002). A single cause is found by halving; causes that act
only together are found with the complements.
"""

from __future__ import annotations

import enum
import itertools
from collections.abc import Callable, Sequence
from typing import TypeVar

_Factor = TypeVar("_Factor")


class ProbeEffect(str, enum.Enum):
    """The effect of a set of changes."""

    SLOWER = "slower"
    NONE = "none"
    UNRESOLVED = "unresolved"  # it does not launch, or the pairs did not decide


def minimise(
    factors: Sequence[_Factor], effect: Callable[[tuple[_Factor, ...]], ProbeEffect]
) -> tuple[_Factor, ...]:
    """Return a smallest part of ``factors`` that is SLOWER: it is not without any one of them.

    All of ``factors`` together must be SLOWER, and none of them must not be. Raises whatever
    ``effect`` does.
    """
    kept, parts = tuple(factors), 2
    while len(kept) > 1:
        pieces = _pieces(kept, parts)
        rests = [tuple(one for one in kept if one not in piece) for piece in pieces]
        if (found := _first_slower(pieces, effect)) is not None:
            kept, parts = found, 2
        elif parts > 2 and (found := _first_slower(rests, effect)) is not None:
            kept, parts = found, parts - 1
        elif parts == len(kept):
            break
        else:
            parts = min(2 * parts, len(kept))
    return kept


def _first_slower(
    sets: Sequence[tuple[_Factor, ...]], effect: Callable[[tuple[_Factor, ...]], ProbeEffect]
) -> tuple[_Factor, ...] | None:
    return next((one for one in sets if effect(one) is ProbeEffect.SLOWER), None)


def _pieces(factors: tuple[_Factor, ...], parts: int) -> list[tuple[_Factor, ...]]:
    """Split into ``parts`` pieces of as equal a length as possible, none of them empty."""
    ends = [len(factors) * part // parts for part in range(parts + 1)]
    return [factors[begin:end] for begin, end in itertools.pairwise(ends)]
