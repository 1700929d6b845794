"""A collective measured by itself: which one, over how many bytes, how often in a step."""

from __future__ import annotations

from typing import Literal

import msgspec

CollectiveKind = Literal["all_reduce", "reduce_scatter", "all_gather", "broadcast"]
FLOAT32 = 4  # bytes of a value

_UNITS = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_MOST_CALLS = 20  # nccl-tests' own number of iterations between two readings of its clock
_BYTES_PER_STEP = 4 * 2**20


class CollectiveStep(msgspec.Struct, frozen=True, kw_only=True):
    """A step that is nothing but calls of one collective, on float32 values."""

    kind: CollectiveKind
    payload: int  # bytes, as nccl-tests counts them: see `ddp_perf.stats.link.model`
    calls: int  # of a step, one after the other


def calls_of(payload: int) -> int:
    """Calls that make a step long enough for its clock: as many as move 4 MiB, 20 at most.

    A CUDA event resolves 0.5 µs and costs a few to record: of one call of 10 µs, too much.
    """
    return max(1, min(_MOST_CALLS, _BYTES_PER_STEP // payload))


def parse_size(text: str) -> int:
    """``64KiB`` → 65536."""
    return int(text[:-3]) * _UNITS[text[-3:]]


def size_text(size: int) -> str:
    """65536 → ``64KiB``: whole KiB, in the largest unit that leaves a whole number."""
    unit = max((unit for unit in _UNITS if size % _UNITS[unit] == 0), key=_UNITS.__getitem__)
    return f"{size // _UNITS[unit]}{unit}"
