"""The files of a launch that ran elsewhere: they are read there, and written where they belong.

Code that is measured can forge a message of its node, so a name in it is that of a rank's file, and
never a path.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, TypeAlias

import msgspec

from ddp_perf.core.launch import LaunchRequest
from ddp_perf.system.files import replace_file

_NAME = r"\Arank[0-9]+\.(out|json|json\.gz)\Z"
RankFileName: TypeAlias = Annotated[str, msgspec.Meta(pattern=_NAME)]


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
    """Return the ranks' files in a directory, by name; none if it is not there."""
    if not directory.is_dir():
        return {}
    return {
        path.name: path.read_bytes()
        for path in sorted(directory.iterdir())
        if re.search(_NAME, path.name) and path.is_file()
    }


def write_brought(
    request: LaunchRequest,
    *,
    records: Mapping[RankFileName, bytes],
    profiles: Mapping[RankFileName, bytes],
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
