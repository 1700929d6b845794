"""Change real files at random: each is read, or refused by its name, within a second."""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests.faults.inputs import READERS, Reader, changed, refusal
from tests.faults.matrix import Tried

LONGEST_S = 1.0  # of CPU time


def trials(*, trials: int, seed: int) -> Iterator[Tried]:
    """Yield so many changed files of each kind."""
    for reader in READERS:
        data, draw = reader.seed(), random.Random(seed)
        with tempfile.TemporaryDirectory() as directory:
            for _ in range(trials):
                yield _try(reader, changed(data, draw), Path(directory))


def _try(reader: Reader, data: bytes, directory: Path) -> Tried:
    began, escaped = time.process_time(), False
    try:
        error = refusal(reader, data, directory)
    except Exception as fault:  # noqa: BLE001 – what a reader must not raise is what is looked for
        error, escaped = f"{type(fault).__name__}: {fault}", True
    seconds = time.process_time() - began
    named = error is None or (reader.name in error and error.count("\n") < 2)
    return Tried(
        fault="bytes are cut, changed or repeated, or a value is nonsense",
        where=reader.kind,
        seen=(error or "it is read").replace(f"{directory}/", ""),
        kept="the file",
        survived=named and not escaped and seconds < LONGEST_S,
    )
