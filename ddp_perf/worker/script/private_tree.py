"""A private tree of links in which a script works: it reads the user's files, and changes none.

The tree mirrors the file system. The script works in the mirror of its working directory, and each
link leads to the user's file or folder. Before Python writes to a path, the folders on the way
become real ones with links of their own, and a link at its end gives way to a file of the script.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import glob
import importlib
import importlib.util
import os
import pathlib
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from ddp_perf.worker.script.hooks import patched

_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_LARGEST_COPY = 64 << 20  # bytes of a file that is changed in place; data may be mapped so to read
_COMPILED = "/__pycache__/"  # what Python writes beside each module
_HERE = -100  # AT_FDCWD: a path begins at the working directory
_EXCHANGE = 2  # RENAME_EXCHANGE
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
        # By audit event: what becomes of a link at the end of each path (None: nothing is written
        # there), and whether the last argument may be a folder that they begin at.
        self._acts: dict[str, tuple[tuple[Callable[[str], None] | None, ...], bool]] = {
            "os.chmod": ((self._copy,), True),
            "os.link": ((self._copy, _keep), True),  # both are then one file
            "os.mkdir": ((_keep,), True),
            "os.remove": ((_keep,), True),
            "os.rename": ((_keep, _keep), True),
            "os.rmdir": ((self._open_folder,), True),
            "os.symlink": ((None, _keep), True),
            "os.truncate": ((self._copy,), False),
            "os.utime": ((self._copy,), True),
            "shutil.rmtree": ((self._empty_folder,), True),
            "sqlite3.connect": ((self._copy,), False),
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
            for resolver in _holders("realpath", os.path):
                stack.enter_context(patched(resolver, "realpath", self._resolve))
            stack.enter_context(patched(os.path, "islink", self._is_link))
            for lister in _holders("scandir", os):
                stack.enter_context(patched(lister, "scandir", self._list))
            self._is_entered = True
            stack.callback(setattr, self, "_is_entered", False)
            sys.addaudithook(self._see)  # for as long as the process lives
            yield

    def own_files(self) -> list[str]:
        """Return the files that the script wrote in its tree, by the paths that it wrote to."""
        with self._alone():
            walk = [(place, names) for place, _, names in os.walk(self._tree)]
            paths = [os.path.join(place, name) for place, names in walk for name in names]
            own = [path for path in paths if not os.path.islink(path) and _COMPILED not in path]
        inner, others = f"{self._work}/", self._tree
        return sorted(path.removeprefix(inner).removeprefix(others) for path in own)

    def changed_outside(self) -> list[str]:
        """Return the user's files that the script changed or removed, as far as it is known.

        A folder is one of them if something was added to it or removed from it.
        """
        with self._alone():
            noted = self._outside.copy().items()  # another thread may add to it
            found = {path for path, was_there in noted if self._is_changed(path, was_there)}
            for place, folders, files in os.walk(self._work):
                # Next to the script others write, too, such as the log of pytest.
                for name in (*folders, *files) if place != self._work else ():
                    if (source := self._source_of(os.path.join(place, name))) is not None:
                        with contextlib.suppress(OSError):
                            is_gone = not os.path.lexists(source)
                            if is_gone or os.stat(source).st_mtime > self._began:
                                found.add(source)
        return sorted(found)

    def _is_changed(self, path: str, was_there: bool) -> bool:
        try:
            return os.lstat(path).st_ctime > self._began
        except OSError:
            return was_there

    def _see(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Prepare for what Python is about to do to a file: a hook of its audit events."""
        if not self._is_entered:
            return
        if event == "open":
            path, _, flags = arguments
            if flags & _WRITES:
                self._prepare(path, self._remove if flags & os.O_TRUNC else self._copy)
        elif event in self._acts:
            acts, may_begin_at_last = self._acts[event]
            begins = arguments[-1] if may_begin_at_last and len(arguments) > len(acts) else None
            if begins not in (-1, None) or (event == "os.mkdir" and os.path.isdir(arguments[0])):
                return
            for act, path in zip(acts, arguments, strict=False):
                if act is not None:
                    self._prepare(path, act, notes=event != "os.mkdir")

    def _prepare(self, path: Any, act: Callable[[str], None], *, notes: bool = True) -> None:
        """Make the way to a path private, and call ``act`` with a link at its end."""
        if not isinstance(path, str | bytes | os.PathLike) or getattr(self._busy, "now", False):
            return
        with self._alone():
            place = _absolute(path)
            if _COMPILED in place:
                return
            if place.startswith(f"{self._tree}/"):
                self._replace(self._private(place), act)
            elif notes:
                self._note(os.path.abspath(place))

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Let this thread see the links as links, and no event of its own."""
        before, self._busy.now = getattr(self._busy, "now", False), True
        try:
            yield
        finally:
            self._busy.now = before

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
        return self._source_of(place) is not None

    def _source_of(self, place: str) -> str | None:
        """Return what a link leads to that leads out of the tree."""
        with contextlib.suppress(OSError):
            target = os.readlink(place)
            if target.startswith("/") and not target.startswith(f"{self._tree}/"):
                return target
        return None

    def _open_folder(self, place: str) -> None:
        if os.path.isdir(place):
            self._make_real(place, os.readlink(place))

    def _make_real(self, place: str, source: str) -> None:
        """Put a folder with a link to each entry of the source in place of a link to it.

        At once, where the kernel can: the other ranks read without the lock.
        """
        folder = f"{self._lock}-{os.getpid()}-{threading.get_ident()}"
        os.mkdir(folder)
        with contextlib.suppress(PermissionError), os.scandir(source) as entries:
            for entry in entries:
                os.symlink(os.path.join(source, entry.name), f"{folder}/{entry.name}")
        if _exchange(folder, place):
            os.unlink(folder)  # it is the link now
            return
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
        elif os.path.isfile(source):
            copy = f"{self._lock}-{os.getpid()}-{threading.get_ident()}-copy"
            shutil.copy2(source, copy)
            os.replace(copy, place)  # at once: the other ranks read without the lock
        else:
            os.unlink(place)

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

    def _user_path(self, path: Any) -> str | None:
        """Return the user's path that a link of the tree itself leads to, not one of the script."""
        if isinstance(path, str | os.PathLike) and not getattr(self._busy, "now", False):
            place = os.path.normpath(_absolute(path))
            source = place.removeprefix(self._tree)
            if source != place and self._source_of(place) == source:
                return source
        return None

    def _is_link(self, original: Callable[..., bool], path: Any) -> bool:
        """Let a link of the tree be what it leads to: os.walk enters no links."""
        source = self._user_path(path)
        return original(path if source is None else source)

    def _list(self, original: Callable[..., Any], path: Any = ".") -> Any:
        """Let the links in a folder of the tree be what they lead to: pathlib enters no links."""
        is_path = isinstance(path, str | os.PathLike) and not getattr(self._busy, "now", False)
        if not is_path or not _absolute(path).startswith(f"{self._tree}/"):
            return original(path)
        with original(path) as entries:
            links = [(one, self._user_path(one) if one.is_symlink() else None) for one in entries]
        return _Listing([one if user is None else _Entry(one, user) for one, user in links])

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        with open(self._lock, "wb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            try:
                yield
            finally:  # a process that another thread forks meanwhile keeps the file open
                fcntl.flock(file, fcntl.LOCK_UN)


class _Entry:
    """An entry of a folder of the tree, as it is in the user's: what its link leads to."""

    def __init__(self, link: os.DirEntry[str], source: str) -> None:
        self.name, self.path = link.name, link.path
        self._link, self._source = link, source

    def __fspath__(self) -> str:
        return self.path

    def is_symlink(self) -> bool:
        return os.path.islink(self._source)

    def is_junction(self) -> bool:
        return False

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        return self._link.is_dir() and (follow_symlinks or not self.is_symlink())

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        return self._link.is_file() and (follow_symlinks or not self.is_symlink())

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        return os.stat(self._source, follow_symlinks=follow_symlinks)

    def inode(self) -> int:
        return os.lstat(self._source).st_ino


class _Listing:
    """An iterator that can be closed, as os.scandir returns it."""

    def __init__(self, entries: list[Any]) -> None:
        self._entries = iter(entries)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return next(self._entries)

    def __enter__(self) -> _Listing:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        self._entries = iter([])


def _holders(function: str, module: Any) -> list[Any]:
    """Return what has the function: pathlib of Python 3.10 and glob of 3.13 keep their own."""
    own = (getattr(pathlib, "_normal_accessor", None), getattr(glob, "_StringGlobber", None))
    return [module, *(one for one in own if hasattr(one, function))]


def _exchange(one: str, other: str) -> bool:
    """Return whether two paths were exchanged at once: not every file system can."""
    rename = getattr(ctypes.CDLL(None), "renameat2", None)
    paths = (_HERE, os.fsencode(one), _HERE, os.fsencode(other))
    return rename is not None and rename(*paths, _EXCHANGE) == 0


def _absolute(path: Any) -> str:
    """Return the path from the root on, with what ``..`` follows: that may be a link."""
    text = os.fsdecode(path)
    return text if text.startswith("/") else f"{os.getcwd()}/{text}"


def _keep(place: str) -> None:
    """Keep a link: its name is removed or replaced, not what it leads to."""
