"""The writer of the files of a report: each as a whole."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from ddp_perf.errors import ResultsError
from ddp_perf.system.files import replace_file


def write_files(directory: Path, files: Iterable[tuple[str, bytes]]) -> None:
    """Replace each file as a whole, or leave it as it was.

    Raises ResultsError, which names the file, if one cannot be written.
    """
    path = directory
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, data in files:
            path = directory / name
            replace_file(path, data)
    except OSError as error:
        raise ResultsError(f"{path}: cannot be written: {error.strerror}") from None
