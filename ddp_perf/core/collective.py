"""A collective that is measured by itself: its kind, its size, and its calls in a step."""

from __future__ import annotations

from typing import Literal

import msgspec

CollectiveKind = Literal["all_reduce", "reduce_scatter", "all_gather", "broadcast"]
FLOAT32 = 4  # bytes of a value

_UNITS = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_MOST_CALLS = 20  # nccl-tests' own number of iterations between two readings of its clock
_BYTES_PER_STEP = 4 * 2**20


class CollectiveStep(msgspec.Struct, frozen=True, kw_only=True):
    """A step that consists of calls of one collective on float32 values."""

    kind: CollectiveKind
    payload: int  # bytes, as nccl-tests counts them: see `ddp_perf.stats.link.model`
    calls: int  # of a step, one after the other


def calls_of(payload: int) -> int:
    """Return the number of calls in a step: as many as move 4 MiB, at least 1 and at most 20.

    A step must be long for its clock. A CUDA event resolves 0.5 µs and takes a few µs to record,
    which is too much beside one call of 10 µs.
    """
    return max(1, min(_MOST_CALLS, _BYTES_PER_STEP // payload))


def parse_size(text: str) -> int:
    """Return the bytes of a text such as ``64KiB`` (65536)."""
    return int(text[:-3]) * _UNITS[text[-3:]]


def size_text(size: int) -> str:
    """Return a size in bytes as text, in the largest unit that gives a whole number: ``64KiB``.

    `size` is a multiple of 1 KiB.
    """
    unit = max((unit for unit in _UNITS if size % _UNITS[unit] == 0), key=_UNITS.__getitem__)
    return f"{size // _UNITS[unit]}{unit}"
