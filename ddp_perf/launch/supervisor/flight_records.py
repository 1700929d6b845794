"""The last collectives of the ranks of a hung launch, read from their flight recorders."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import msgspec

from ddp_perf.launch.supervisor.rank import SupervisedRank

_ANSWER_S = 1.0
_LAST = 3


def flight_records(ranks: Sequence[SupervisedRank], directory: str | None) -> dict[str, str]:
    """Return the last collectives of each rank that answers: the oldest first, one per line.

    All records are written to ``directory``, one JSON file per rank. A rank does not answer if it
    is stopped, or if it hangs and blocks its other threads.
    """
    dumps = _ask(ranks)
    found = {}
    for rank, dump in sorted(dumps.items()):
        entries: list[dict[str, Any]] = msgspec.json.decode(dump)
        found[f"rank {rank}"] = "\n".join(map(_describe, entries[-_LAST:])) or "none recorded"
        if directory is not None:
            # The text is more important than a file that cannot be written.
            with contextlib.suppress(OSError):
                path = Path(directory) / f"rank{rank}.json"
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(dump)
    return found


def _ask(ranks: Sequence[SupervisedRank]) -> dict[int, bytes]:
    waiting = {}
    for rank in ranks:
        with contextlib.suppress(OSError):
            rank.recorder.send_bytes(b"?")
            waiting[rank.recorder] = rank.rank
    dumps = {}
    end = time.monotonic() + _ANSWER_S
    while waiting and (ready := wait(waiting, max(end - time.monotonic(), 0))):
        for connection in ready:
            rank_number = waiting.pop(connection)  # type: ignore[call-overload]
            with contextlib.suppress(EOFError, OSError):
                dumps[rank_number] = connection.recv_bytes()  # type: ignore[union-attr]
    return dumps


def _describe(entry: dict[str, Any]) -> str:
    """Return a line about a collective, from the fields that this version of torch records."""
    shapes = " ".join(map(str, entry.get("input_sizes", ())))
    types = " ".join(map(str, entry.get("input_dtypes", ())))
    number = entry.get("collective_seq_id", entry.get("record_id", "?"))
    what = entry.get("profiling_name", "a collective")
    state = "done" if entry.get("retired") else entry.get("state", "state unknown")
    return f"#{number} {what} {shapes} {types}: {state}"
