"""Atomic writes: a file is the old one or the new one, never a part of each."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def replace_file(path: Path, data: bytes) -> None:
    """Write ``data`` to a new file, flush it to disk, and rename it to ``path``.

    Raises OSError, for example if the disk is full; then ``path`` is unchanged.
    """
    descriptor, name = tempfile.mkstemp(dir=path.absolute().parent, prefix=f".{path.name}.")
    beside = Path(name)
    try:
        try:
            _write(descriptor, data)
        finally:
            os.close(descriptor)
        beside.chmod(0o644)
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def _write(descriptor: int, data: bytes) -> None:
    """Write all of ``data`` to disk.

    There is no file object: an interrupt just after its creation would leave it unclosed, which is
    a warning of Python, and fails a session in which warnings are errors.
    """
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]
    os.fsync(descriptor)
