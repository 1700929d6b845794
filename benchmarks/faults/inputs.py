"""Change real files at random: each is read, or refused by its name, within a second and 500 MB."""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests.faults.inputs import (
    CHANGES,
    HOSTILE,
    READERS,
    Reader,
    is_named,
    little_memory,
    refusal,
)
from tests.faults.matrix import Tried

LONGEST_S = 1.0  # of CPU time


def trials(*, trials: int, seed: int) -> Iterator[Tried]:
    """Yield so many changed files of each kind, a quarter of them of each change; then the rest."""
    with tempfile.TemporaryDirectory() as name, little_memory():
        for fault, change in CHANGES.items():
            for reader in READERS:
                data, draw = reader.seed(), random.Random(f"{seed} {fault}")
                for _ in range(trials // len(CHANGES)):
                    yield _try(fault, reader, change(data, draw), Path(name))
        for fault, data in HOSTILE.items():
            for reader in READERS:
                yield _try(fault, reader, data, Path(name))


def _try(fault: str, reader: Reader, data: bytes, directory: Path) -> Tried:
    began, escaped = time.process_time(), False
    try:
        error = refusal(reader, data, directory)
    except Exception as raised:  # noqa: BLE001 – what a reader must not raise is what is looked for
        error, escaped = f"{type(raised).__name__}: {raised}", True
    seconds = time.process_time() - began
    named = (error is None and fault not in HOSTILE) or (
        error is not None and is_named(reader, directory, error)
    )
    return Tried(
        fault=fault,
        where=reader.kind,
        seen="" if error is None else error.replace(f"{directory}/", ""),
        kept="the file",
        survived=named and not escaped and seconds < LONGEST_S,
    )
