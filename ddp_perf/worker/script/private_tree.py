"""A private tree of links in which a script works: it reads the user's files, and changes none.

The tree mirrors the file system. The script works in the mirror of its working directory, and each
link leads to the user's file or folder. Before Python writes to a path, the folders on the way
become real ones with links of their own, and a link at its end gives way to a file of the script.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib
import importlib.util
import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from ddp_perf.worker.script.patching import patched

_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_LARGEST_COPY = 64 << 20  # bytes of a file that is changed in place; data may be mapped so to read
_COMPILED = "/__pycache__/"  # what Python writes beside each module
_IN_C = (("torch", "save", "f"), ("safetensors", "serialize_file", "filename"))  # no audit event


class PrivateTree:
    """The private tree of a launch, which its ranks share, in a directory of the launch alone.

    ``roots`` are the user's folders: what the script writes there by another way is noted, also if
    they are temporary ones.
    """

    def __init__(self, directory: Path, roots: Sequence[str]) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        base = os.path.realpath(directory)
        self._tree, self._lock = f"{base}/tree", f"{base}/lock"
        self._work = f"{self._tree}{os.getcwd()}"
        self._roots = tuple(f"{os.path.realpath(root)}/" for root in (os.getcwd(), *roots))
        temporary = os.path.realpath(tempfile.gettempdir())
        self._nobodys = ("/dev/", "/proc/", f"{temporary}/", os.path.expanduser("~/."))
        self._outside: dict[str, bool] = {}  # by path: whether it was there before
        self._is_entered = False
        self._busy = threading.local()  # its own calls raise audit events, too
        Path(self._lock).touch()
        self._began = os.stat(self._lock).st_ctime  # by the clock that files have
        # By audit event: what becomes of a link at the end of a path, which arguments are paths,
        # and whether the last one is a folder that they begin at.
        self._acts: dict[str, tuple[Callable[[str], None], tuple[int, ...], bool]] = {
            "os.chmod": (self._copy, (0,), True),
            "os.link": (_keep, (1,), True),
            "os.mkdir": (self._open_folder, (0,), True),
            "os.remove": (_keep, (0,), True),
            "os.rename": (_keep, (0, 1), True),
            "os.rmdir": (self._open_folder, (0,), True),
            "os.symlink": (_keep, (1,), True),
            "os.truncate": (self._copy, (0,), False),
            "os.utime": (self._copy, (0,), True),
            "shutil.rmtree": (self._empty_folder, (0,), True),
            "sqlite3.connect": (self._copy, (0,), False),
        }

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """Let the ``with`` block work in the mirror of the working directory."""
        with self._locked():
            place = self._tree
            for part in ("", *filter(None, self._work.removeprefix(self._tree).split("/"))):
                place = f"{place}/{part}" if part else place
                if os.path.islink(place) or not os.path.isdir(place):
                    self._make_real(place, place.removeprefix(self._tree) or "/")
        with contextlib.ExitStack() as stack:
            for module, function, path in _IN_C:
                if importlib.util.find_spec(module) is not None:
                    owner = importlib.import_module(module)
                    stack.enter_context(patched(owner, function, self._before_c(path)))
            stack.callback(os.chdir, os.getcwd())
            os.chdir(self._work)
            stack.enter_context(patched(os, "chdir", self._change_folder))
            stack.enter_context(patched(os.path, "realpath", self._resolve))
            self._is_entered = True
            stack.callback(setattr, self, "_is_entered", False)
            sys.addaudithook(self._see)  # for as long as the process lives
            yield

    def own_files(self) -> list[str]:
        """Return the files that the script wrote in its tree, by the paths that it wrote to."""
        paths = [
            os.path.join(place, name) for place, _, names in os.walk(self._tree) for name in names
        ]
        own = [path for path in paths if not os.path.islink(path) and _COMPILED not in path]
        inner, others = f"{self._work}/", self._tree
        return sorted(path.removeprefix(inner).removeprefix(others) for path in own)

    def changed_outside(self) -> list[str]:
        """Return the user's files that the script changed or removed, as far as it is known."""
        found = {
            path
            for path, was_there in self._outside.items()
            if (os.lstat(path).st_ctime > self._began if os.path.lexists(path) else was_there)
        }
        for place, _, names in os.walk(self._work):
            # Next to the script others write, too, such as the log of pytest.
            for path in (os.path.join(place, name) for name in names if place != self._work):
                with contextlib.suppress(OSError):
                    if self._leads_out(path) and os.stat(path).st_mtime > self._began:
                        found.add(os.readlink(path))
        return sorted(found)

    def _see(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Prepare for what Python is about to do to a file: a hook of its audit events."""
        if not self._is_entered:
            return
        if event == "open":
            path, _, flags = arguments
            if flags & _WRITES:
                self._prepare(path, self._remove if flags & os.O_TRUNC else self._copy)
        elif event in self._acts:
            act, places, begins_at_last = self._acts[event]
            if not begins_at_last or arguments[-1] in (-1, None):
                for place in places:
                    self._prepare(arguments[place], act, notes=event != "os.mkdir")

    def _prepare(self, path: Any, act: Callable[[str], None], *, notes: bool = True) -> None:
        """Make the way to a path private, and call ``act`` with a link at its end."""
        if not isinstance(path, str | bytes | os.PathLike) or getattr(self._busy, "now", False):
            return
        self._busy.now = True
        try:
            place = _absolute(path)
            if _COMPILED in place:
                return
            if place.startswith(f"{self._tree}/"):
                self._replace(self._private(place), act)
            elif notes:
                self._note(os.path.abspath(place))
        finally:
            self._busy.now = False

    def _private(self, place: str) -> str:
        """Return a path of the tree without a link that leads out of it, but for its last part."""
        *folders, last = place.removeprefix(self._tree).split("/")
        here = self._tree
        for part in folders:
            if part in ("", "."):
                continue
            here = os.path.dirname(here) if part == ".." else f"{here}/{part}"
            self._replace(here, self._open_folder)
            if os.path.islink(here):  # the script made it
                here = self._private(os.path.join(os.path.dirname(here), os.readlink(here), ""))
        return f"{here}/{last}".rstrip("/")

    def _replace(self, place: str, act: Callable[[str], None]) -> None:
        """Call ``act`` if the path is a link that leads out of the tree, on one rank at a time."""
        if self._leads_out(place):
            with self._locked():
                if self._leads_out(place):
                    act(place)

    def _leads_out(self, place: str) -> bool:
        with contextlib.suppress(OSError):
            target = os.readlink(place)
            return target.startswith("/") and not target.startswith(f"{self._tree}/")
        return False

    def _open_folder(self, place: str) -> None:
        if os.path.isdir(place):
            self._make_real(place, os.readlink(place))

    def _make_real(self, place: str, source: str) -> None:
        """Put a folder with a link to each entry of the source in place of a link to it."""
        folder = f"{self._lock}-{os.getpid()}-{threading.get_ident()}"
        os.mkdir(folder)
        with contextlib.suppress(PermissionError), os.scandir(source) as entries:
            for entry in entries:
                os.symlink(os.path.join(source, entry.name), f"{folder}/{entry.name}")
        with contextlib.suppress(FileNotFoundError):
            os.unlink(place)
        os.rename(folder, place)

    def _empty_folder(self, place: str) -> None:
        if os.path.isdir(place):
            os.unlink(place)
            os.mkdir(place)

    def _remove(self, place: str) -> None:
        if not os.path.isdir(place):
            os.unlink(place)

    def _copy(self, place: str) -> None:
        """Copy a file that is changed in place, if it is small. A larger one is noted."""
        source = os.readlink(place)
        if os.path.isdir(source):
            self._make_real(place, source)
        elif os.path.exists(source) and os.path.getsize(source) > _LARGEST_COPY:
            self._note(source)
        else:
            os.unlink(place)
            if os.path.isfile(source):
                shutil.copy2(source, place)

    def _note(self, path: str) -> None:
        if path.startswith(self._roots) or not path.startswith(self._nobodys):
            self._outside.setdefault(path, os.path.lexists(path))

    def _before_c(self, name: str) -> Callable[..., Any]:
        """Return what wraps a function that writes to its second argument, ``name``, in C++."""

        def around(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            self._prepare(args[1] if len(args) > 1 else kwargs.get(name), self._remove)
            return original(*args, **kwargs)

        return around

    def _change_folder(self, original: Callable[..., Any], path: Any) -> None:
        """Let a script that changes to a folder of the user's work in its mirror."""
        if isinstance(path, str | bytes | os.PathLike):
            place = _absolute(path)
            if f"{os.path.normpath(place)}/".startswith(self._roots):
                place = f"{self._tree}{place}"
            if place.startswith(f"{self._tree}/"):
                self._prepare(os.path.join(place, ""), _keep)
                path = place
        original(path)

    def _resolve(self, original: Callable[..., Any], path: Any, **options: Any) -> Any:
        """Let a path of the tree stay in it: scripts resolve the folders that they write to."""
        real = original(path, **options)
        is_own = isinstance(real, str) and _absolute(path).startswith(f"{self._tree}/")
        return f"{self._tree}{real}" if is_own and not real.startswith(self._tree) else real

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        with open(self._lock, "wb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def _absolute(path: Any) -> str:
    """Return the path from the root on, with what ``..`` follows: that may be a link."""
    text = os.fsdecode(path)
    return text if text.startswith("/") else f"{os.getcwd()}/{text}"


def _keep(place: str) -> None:
    """Keep a link: its name is removed or replaced, not what it leads to."""
