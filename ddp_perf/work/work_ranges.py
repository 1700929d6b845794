"""The works of a row in a file: "0-2,5" for the works 0, 1, 2 and 5."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any


def with_works(rows: Iterable[tuple[tuple[Any, ...], int]]) -> Iterator[tuple[Any, str]]:
    """Yield each row once, with the numbers of its works. A row may be in a work several times."""
    left = sorted(rows)
    while left:
        again = []
        for row, group in itertools.groupby(left, key=lambda item: item[0]):
            numbers = [number for _, number in group]
            yield row, _ranges(sorted(set(numbers)))
            again += [(row, n) for n in sorted(set(numbers)) for _ in range(numbers.count(n) - 1)]
        left = again


def _ranges(numbers: Sequence[int]) -> str:
    """Return ``0-2,5`` for 0, 1, 2 and 5."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


@functools.cache
def numbers_of(text: str) -> frozenset[int]:
    """Return the numbers of a text such as ``0-2,5``."""
    numbers: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        numbers |= set(range(int(first), int(last or first) + 1))
    return frozenset(numbers)
