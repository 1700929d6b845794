"""Faults of storage: what is stored is written again while the disk is full, or changes nothing."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

import msgspec

from ddp_perf.baselines.save import NewSession, merge
from ddp_perf.baselines.store import BaselineStore
from ddp_perf.core.baseline import Baseline
from ddp_perf.errors import DdpPerfError
from ddp_perf.history.store import HistoryStore
from ddp_perf.system.files import write_files
from ddp_perf.system.ledger import Ledger
from tests.builders import make_case, make_session, make_stored_structure, make_structure
from tests.faults.matrix import Tried
from tests.recorded_sessions import make_recorded_session

KEY = "cpu-some-2c-host"
PATCH = b"a line of a patch\n" * 40
_USERS, _GROUP = (30_001, 30_002), 30_000
SIZES = (0, 1, 100, 2000, 5000, 20_000)  # bytes of a file that still fit


class Writer(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of file. ``write`` stores the thing of a number; ``read`` returns all numbers."""

    name: str
    write: Callable[[Path, int], None]
    read: Callable[[Path], set[int]]
    named: Callable[[Path], str] = str  # what an error must name


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """A line of a ledger."""

    number: int
    text: str


def _write_baseline(directory: Path, number: int) -> None:
    session = make_session([0.01], day=number)
    new = NewSession(case=make_case(), session=session, structure=make_structure())

    def change(stored: Baseline) -> Baseline:
        return merge(stored, [new], mode="append", reason=None)

    BaselineStore(directory).update(KEY, change)


def _read_baseline(directory: Path) -> set[int]:
    cases = BaselineStore(directory).load(KEY).cases.values()
    return {int(session.date[8:10]) for case in cases for session in case.sessions}


def _write_structure(directory: Path, number: int) -> None:
    known = make_stored_structure(make_case())
    BaselineStore(directory).work.update(
        "quick",
        None,
        lambda now: msgspec.structs.replace(now, cases={**now.cases, f"case-{number}": known}),
    )


def _read_structures(directory: Path) -> set[int]:
    structures = BaselineStore(directory).work.structures("quick")
    return {int(name.removeprefix("case-")) for name in structures}


def _write_patch(directory: Path, number: int) -> None:
    BaselineStore(directory).keep_patch(f"{number:040}", PATCH)


def _read_patches(directory: Path) -> set[int]:
    patches = (directory / "code").glob("*.patch")
    return {int(path.stem) for path in patches if path.read_bytes() == PATCH}


def append_session(url: str, number: int) -> None:
    """Append the session of a number to a history."""
    with contextlib.closing(HistoryStore(url)) as store:
        store.append([make_recorded_session(make_case(), number, 0.01)])


def recorded_sessions(url: str) -> set[int]:
    """Return the numbers of the sessions in a history."""
    with contextlib.closing(HistoryStore(url)) as store:
        dates = [record.info.date for record in store.records()]
    return {number for number in range(1, 20) if _date(number) in dates}


def _write_history(directory: Path, number: int) -> None:
    append_session(_url(directory), number)


def _read_history(directory: Path) -> set[int]:
    return recorded_sessions(_url(directory))


def _url(directory: Path) -> str:
    return f"sqlite:///{directory / 'history.sqlite'}"


def _date(number: int) -> str:
    return make_recorded_session(make_case(), number, 0.01).info.date


def _write_ledger(directory: Path, number: int) -> None:
    with contextlib.closing(_ledger(directory)) as ledger:
        ledger.append(Entry(number=number, text="x" * 1000))


def _read_ledger(directory: Path) -> set[int]:
    with contextlib.closing(_ledger(directory)) as ledger:
        return {entry.number for entry in ledger.entries}


def _ledger(directory: Path) -> Ledger[Entry]:
    return Ledger(directory / "log.jsonl", Entry, {"commit": "abc"})


def _write_report(directory: Path, number: int) -> None:
    write_files(directory / "report", [(f"{number}.json", b"%d" % number * 3000)])


def _read_reports(directory: Path) -> set[int]:
    files = (directory / "report").glob("*.json")
    return {int(file.stem) for file in files if file.read_bytes() == file.stem.encode() * 3000}


WRITERS = (
    Writer(name="a baseline", write=_write_baseline, read=_read_baseline),
    Writer(name="structures and counts", write=_write_structure, read=_read_structures),
    Writer(name="the patch of a session's code", write=_write_patch, read=_read_patches),
    Writer(name="the history (SQLite)", write=_write_history, read=_read_history),
    Writer(name="the log of a duel or a search", write=_write_ledger, read=_read_ledger),
    Writer(name="a report", write=_write_report, read=_read_reports),
)


@contextlib.contextmanager
def full_after(size: int) -> Iterator[None]:
    """Let no file of this process grow beyond ``size`` bytes: the kernel refuses the write.

    Python ignores the signal, so a write fails with EFBIG where a full disk gives ENOSPC.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@contextlib.contextmanager
def failing(name: str) -> Iterator[None]:
    """Let a function of `os` fail as on a full disk."""

    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with mock.patch.object(os, name, fail):
        yield


def play(
    writer: Writer,
    directory: Path,
    fault: str,
    where: str,
    trouble: contextlib.AbstractContextManager[None],
) -> Tried:
    """Store one thing, store another in trouble, and store it again once the trouble is over."""
    writer.write(directory, 1)
    files = _files(directory)
    error = None
    try:
        with trouble:
            writer.write(directory, 2)
    except DdpPerfError as caught:
        error = str(caught)
    after = writer.read(directory)
    left = _files(directory) - files
    writer.write(directory, 2)
    again = writer.read(directory)
    named = writer.named(directory)
    told = error is None or (named in error and error.count("\n") < 2)
    expected = {1, 2} if error is None else {1}
    return Tried(
        fault=fault,
        where=f"{writer.name}, {where}",
        seen=(error or "it was stored").replace(str(directory), "DIRECTORY"),
        kept="what was stored before",
        survived=told and again == {1, 2},
        lost=len(expected - after),
        leaked=() if error is None else tuple(sorted(map(str, left))),
    )


def _files(directory: Path) -> set[Path]:
    """Return all files but a journal of SQLite, which the next process rolls back."""
    found = {path for path in directory.rglob("*") if path.is_file()}
    return {path for path in found if not path.name.startswith("history.sqlite-")}


def _conflict(text: str) -> str:
    return f"<<<<<<< ours\n{text}=======\n{text}>>>>>>> theirs\n"


def _future(text: str) -> str:
    return text.replace('"2026-01-01T', '"2099-01-01T')


def _twice(text: str) -> str:
    """Put the older session behind the newer one, as a merge by hand does."""
    return text.replace('"2026-01-01T', '"2026-01-03T')


DAMAGES: dict[str, Callable[[str], str]] = {
    "a merge by hand leaves its markers": _conflict,
    "a merge by hand mixes the order of sessions": _twice,
    "a clock was in 2099 when a session was stored": _future,
    "a file is cut short": lambda text: text[: len(text) // 2],
    "a file is empty": lambda text: "",
}


def play_damage(fault: str, directory: Path) -> Tried:
    """Damage a baseline of two sessions, and store a third: the file must stay as it is."""
    for number in (1, 2):
        _write_baseline(directory, number)
    path = BaselineStore(directory).path(KEY)
    before = DAMAGES[fault](path.read_text(encoding="utf-8"))
    path.write_text(before, encoding="utf-8")
    files, error = _files(directory), ""
    try:
        _write_baseline(directory, 4)
    except DdpPerfError as caught:
        error = str(caught)
    return Tried(
        fault=fault,
        where="a baseline",
        seen=error.replace(str(directory), "DIRECTORY"),
        kept="the file, as it is",
        survived=str(path) in error and error.count("\n") < 2,
        lost=int(path.read_text(encoding="utf-8") != before),
        leaked=tuple(map(str, _files(directory) - files)),
    )


def play_link(directory: Path) -> Tried:
    """Store a session in a baseline that is a link to a file elsewhere."""
    _write_baseline(directory / "elsewhere", 1)
    here = directory / "here"
    here.mkdir()
    link = BaselineStore(here).path(KEY)
    link.symlink_to(BaselineStore(directory / "elsewhere").path(KEY))
    _write_baseline(here, 2)
    elsewhere = _read_baseline(directory / "elsewhere")
    return Tried(
        fault="a baseline is a link",
        where="a baseline",
        seen="it was stored",
        kept="the link, and every session behind it",
        survived=link.is_symlink() and elsewhere == {1, 2},
        lost=len({1, 2} - _read_baseline(here)),
    )


def play_second_user(writer: Writer, directory: Path) -> Tried:
    """Let another user of the group store a thing where the first one has, with a umask of 002.

    Needs root, which alone can be two users.
    """
    directory.chmod(0o2775)
    os.chown(directory, -1, _GROUP)
    answers = [_as_user(user, writer, directory, number) for number, user in enumerate(_USERS, 1)]
    return Tried(
        fault="two users of a group store in one directory, with a umask of 002",
        where=writer.name,
        seen=("".join(answers) or "it was stored").replace(str(directory), "DIRECTORY"),
        kept="what each user stored",
        survived=not any(answers),
        lost=len({1, 2} - writer.read(directory)),
    )


def _as_user(user: int, writer: Writer, directory: Path, number: int) -> str:
    """Store a thing in a fork that is this user, and return its error."""
    told, tell = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([_GROUP])
            os.setresgid(_GROUP, _GROUP, _GROUP)
            os.setresuid(user, user, user)
            os.umask(0o002)
            writer.write(directory, number)
        except (DdpPerfError, OSError) as error:
            os.write(tell, str(error).encode())
        finally:
            os._exit(0)
    os.close(tell)
    with os.fdopen(told, encoding="utf-8") as answer:
        text = answer.read()
    os.waitpid(child, 0)
    return text
