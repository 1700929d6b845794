"""The output of ranks: what is kept of it, its last lines after a failure, and no flood of it."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from ddp_perf.core.launch import KeptOutput
from ddp_perf.system.files import replace_file
from ddp_perf.system.gpu.gpus import nccl_choice

MOST = 2**20  # bytes of a rank: NCCL_DEBUG=INFO prints a tenth of it on eight GPUs
_FLOOD = 64 * MOST  # of a rank, on a disk that others need, too
_LAST = 2**16  # bytes in which the last lines are looked for


def forget_output(directory: Path) -> None:
    """Remove what an earlier session kept: the launch that begins may print nothing."""
    shutil.rmtree(directory, ignore_errors=True)


def beginnings(files: Sequence[Path]) -> dict[str, bytes]:
    """Return the first ``MOST`` bytes of each rank's output, by the name of its file.

    Ranks that printed nothing are left out.
    """
    return {file.name: _beginning(file) for file in files if file.is_file() and file.stat().st_size}


def keep_output(directory: Path, printed: Mapping[str, bytes]) -> KeptOutput | None:
    """Write what the ranks printed to the directory; return None if they printed nothing.

    A write that fails, as on a full disk, is a problem in the result and never an error: the
    measurement is worth more.
    """
    if not printed:
        return None
    path = directory
    problem = None
    try:
        for name, data in printed.items():
            path = directory / name
            directory.mkdir(parents=True, exist_ok=True)
            replace_file(path, data)
    except OSError as error:
        problem = f"{path} cannot be written: {error.strerror}"
    return KeptOutput(
        directory=str(directory),
        problem=problem,
        nccl=nccl_choice(data.decode("utf-8", "replace") for data in printed.values()),
    )


def last_lines(file: Path, count: int) -> str:
    """Return the last lines of a rank's output; of a long one, those at its end.

    Raises OSError.
    """
    with file.open("rb") as stream:
        stream.seek(max(os.fstat(stream.fileno()).st_size - _LAST, 0))
        lines = stream.read(_LAST).decode("utf-8", "replace").splitlines()
    return "\n".join(lines[-count:])


def cut_flood(file: Path) -> None:
    """Keep the beginning of an output that would fill the disk. The rank goes on behind it.

    It appends, so what it prints next is the end of the file.
    """
    with contextlib.suppress(OSError):  # there is none yet
        if file.stat().st_size > _FLOOD:
            os.truncate(file, MOST)


def _beginning(file: Path) -> bytes:
    """Return the output up to ``MOST`` bytes, with a note that more followed."""
    with file.open("rb") as stream:
        data = stream.read(MOST)
        has_more = os.fstat(stream.fileno()).st_size > len(data)
    return data + b"\n[what followed was not kept]\n" if has_more else data
