"""The output of the ranks of a launch that succeeded. That of a failed one is in its failure."""

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
_MOST_ON_DISK = 2**26  # while the rank runs


def forget_output(directory: Path) -> None:
    """Remove what an earlier session kept: the launch that begins may print nothing."""
    shutil.rmtree(directory, ignore_errors=True)


def beginnings(files: Sequence[Path]) -> dict[str, bytes]:
    """Return the first ``MOST`` bytes of each rank's output, by the name of its file.

    Ranks that printed nothing are left out.
    """
    return {file.name: _beginning(file) for file in files if file.is_file() and file.stat().st_size}


def cut_output(file: Path) -> None:
    """Cut the output of a rank that runs to its beginning, so that it does not fill the disk.

    The rank appends to it, so what it prints later is the end of the file.
    """
    with contextlib.suppress(OSError):
        if file.stat().st_size > _MOST_ON_DISK:
            os.truncate(file, MOST + 1)


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


def _beginning(file: Path) -> bytes:
    """Return the output up to ``MOST`` bytes, with a note on what follows."""
    with file.open("rb") as stream:
        data = stream.read(MOST)
        return data + b"\n[the rest was not kept]\n" if stream.read(1) else data
