"""Writing the files of a directory of baselines: each file whole, by one process at a time."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import filelock
import msgspec

from ddp_perf.errors import BaselineError
from ddp_perf.system.files import replace_file

_LOCK_PATIENCE_S = 30
_LOCK = ".lock"


@contextlib.contextmanager
def writing(directory: Path, path: Path) -> Iterator[None]:
    """Hold the lock of the directory while ``path`` below it is read, changed and replaced.

    Raises BaselineError for a lock that is held for too long, and for a failed write.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        _leave_lock_out_of_git(directory)
        # Each user of a shared directory can lock it, whoever was the first.
        with filelock.FileLock(directory / _LOCK, timeout=_LOCK_PATIENCE_S, mode=0o666):
            yield
    except filelock.Timeout:
        raise BaselineError(
            f"{path}: another process has been writing here for {_LOCK_PATIENCE_S} s;"
            f" if no process is writing, remove {directory / _LOCK}"
        ) from None
    except OSError as error:
        raise BaselineError(
            f"{path}: cannot be written ({error.strerror}); the old file is untouched"
        ) from None


def check_storable(directory: Path) -> None:
    """Check that files of the directory could be written now. Nothing is made.

    Raises BaselineError, with the remedy.
    """
    places = (directory, *directory.absolute().parents)
    place = next(path for path in places if os.path.lexists(path))
    lock = directory / _LOCK
    if not place.is_dir() or not os.access(place, os.W_OK | os.X_OK):
        refused = place  # also a link that leads nowhere
    elif lock.exists() and not os.access(lock, os.W_OK):
        refused = lock
    else:
        return
    raise BaselineError(
        f"{refused}: cannot be written, so no baseline could be stored; make it writable, or"
        " name another directory by -o ddp_baselines=DIRECTORY"
    )


def write_json(path: Path, content: msgspec.Struct) -> None:
    """Replace the file by ``content``. The old one stays until the new one is completely there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, format_json(msgspec.to_builtins(content)).encode())


def _leave_lock_out_of_git(directory: Path) -> None:
    """Write a .gitignore with the lock and itself, unless there is one.

    The lock is beside the baselines, which may be on a disk that several machines share.
    """
    path = directory / ".gitignore"
    with contextlib.suppress(FileExistsError), path.open("x", encoding="utf-8") as file:
        file.write("/.lock\n/.gitignore\n")


# JSON that is easy to review: keys are sorted, and a value without children is one line.


def format_json(value: Any) -> str:
    """Return the text of a file, with a newline at its end."""
    return _format(value, "") + "\n"


def _format(value: Any, indent: str) -> str:
    children = list(value.values()) if isinstance(value, dict) else value
    plain = not any(isinstance(child, dict | list | tuple) for child in _items(children))
    if not isinstance(value, dict | list | tuple) or plain:
        return json.dumps(value, sort_keys=True, ensure_ascii=False, allow_nan=False)
    deeper = indent + " "
    if isinstance(value, dict):
        lines = [
            f"{deeper}{json.dumps(key)}: {_format(value[key], deeper)}" for key in sorted(value)
        ]
        return "{\n" + ",\n".join(lines) + f"\n{indent}}}"
    return "[\n" + ",\n".join(deeper + _format(item, deeper) for item in value) + f"\n{indent}]"


def _items(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else []
