"""The files of a launch that ran elsewhere: they are read there, and written where they belong."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path

import msgspec

from ddp_perf.core.launch import LaunchRequest
from ddp_perf.system.files import replace_file


def with_directories(request: LaunchRequest, records: Path, profiles: Path) -> LaunchRequest:
    """Return the request with directories of this machine in the place of those of the driver."""
    profiling = request.profiling
    if profiling is not None:
        profiling = msgspec.structs.replace(profiling, directory=str(profiles))
    return msgspec.structs.replace(
        request,
        records=None if request.records is None else str(records),
        profiling=profiling,
    )


def contents(directory: Path) -> dict[str, bytes]:
    """Return the files in a directory, by name; none if it is not there."""
    if not directory.is_dir():
        return {}
    return {path.name: path.read_bytes() for path in sorted(directory.iterdir()) if path.is_file()}


def write_brought(
    request: LaunchRequest, *, records: Mapping[str, bytes], profiles: Mapping[str, bytes]
) -> None:
    """Write what was brought into the directories that the request names."""
    profiling = None if request.profiling is None else request.profiling.directory
    for directory, found in ((request.records, records), (profiling, profiles)):
        if directory is None or not found:
            continue
        # The outcome is more important than a file that cannot be written.
        with contextlib.suppress(OSError):
            Path(directory).mkdir(parents=True, exist_ok=True)
            for name, data in found.items():
                replace_file(Path(directory) / name, data)
