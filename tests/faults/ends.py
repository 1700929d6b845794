"""Ends of a pytest session by signals, at any moment: what is read afterwards, and what is left.

The session writes every file that it can. Then the same command runs again, and must go on from
what was measured.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from ddp_perf.baselines.store import read_baseline
from ddp_perf.errors import DdpPerfError
from ddp_perf.history.store import HistoryStore
from ddp_perf.session.result import read_results
from tests.faults.matrix import Tried
from tests.faults.sessions import LAUNCH_S, Project, Session, Trouble, no_trouble

OUTPUTS = ("--ddp-json=results.json", "--ddp-history=sqlite:///history.sqlite")
REPORT = "--ddp-report=report"
_SAYS = ("ended by", "ddp: interrupted", "Ctrl-C ended", "KeyboardInterrupt")


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """Signals to a session that measures."""

    name: str
    signals: tuple[signal.Signals, ...]


FAULTS = (
    Fault(name="SIGKILL of the session", signals=(signal.SIGKILL,)),
    Fault(name="Ctrl-C", signals=(signal.SIGINT,)),
    Fault(name="Ctrl-C twice", signals=(signal.SIGINT, signal.SIGINT)),
    Fault(name="SIGTERM", signals=(signal.SIGTERM,)),
    Fault(name="SIGTERM twice", signals=(signal.SIGTERM, signal.SIGTERM)),
    Fault(name="SIGHUP", signals=(signal.SIGHUP,)),
)


def _end(session: Session, fault: Fault, launches: int, then_s: float, draw: random.Random) -> bool:
    """Send the signals, the first one so long after so many launches; return whether it ran."""
    process = session.process
    while process.is_alive() and session.launches < launches:
        time.sleep(LAUNCH_S / 4)
    process.join(then_s)
    hit = process.is_alive()
    for number in fault.signals:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid or 0, number)
        process.join(draw.uniform(0, 0.02))
    process.join()
    return hit


class StoredProject(Project):
    """A project of which is known what it has stored, and how long its sessions take."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, *OUTPUTS)
        self.stored = stored(directory)
        structures = len(list((directory / "baselines/structure").glob("*.json")))
        self.of_session = self.stored.total() - structures
        self._whole_s = dict[tuple[str, ...], float]()

    def start(self, directory: Path, *options: str, trouble: Trouble = no_trouble) -> Session:
        (directory / "results.json").unlink(missing_ok=True)  # that of the session before
        return super().start(directory, *options, trouble=trouble)

    def whole_s(self, *options: str) -> float:
        """Return how long a session takes from its first launch."""
        if options not in self._whole_s:
            with self.copied() as directory:
                session = self.start(directory, *options)
                begun = time.monotonic()
                assert session.wait() == 0, session.output
                self._whole_s[options] = time.monotonic() - begun
        return self._whole_s[options]


def stored(directory: Path) -> Counter[bytes]:
    """Read every file of a project by the suite's reader, and return what must never be lost.

    Raises DdpPerfError for a file that cannot be read.
    """
    found = Counter[bytes]()
    for path in (directory / "baselines").glob("*.json"):
        for case, baseline in read_baseline(path).cases.items():
            found.update(msgspec.json.encode((case, one)) for one in baseline.sessions)
    for path in (directory / "baselines/structure").glob("*.json"):
        found[path.read_bytes()] += 1
    if (directory / "results.json").exists():
        read_results(directory / "results.json")
    url = f"sqlite:///{directory / 'history.sqlite'}"
    with contextlib.closing(HistoryStore(url, create=False)) as store:
        found.update(msgspec.json.encode(record) for record in store.records())
    for page in (directory / "report").rglob("*.html"):
        if not page.read_text(encoding="utf-8").rstrip().endswith("</html>"):
            raise DdpPerfError(f"{page}: is cut short")
    return found


def _logged(directory: Path) -> int:
    """Return how many launches the next session goes on from."""
    logs = (directory / "artifacts/launches").glob("*.jsonl")
    return sum(len(log.read_bytes().split(b"\n")[1:-1]) for log in logs)


def _reported(directory: Path) -> int:
    if not (directory / "results.json").exists():
        return 0
    suites = read_results(directory / "results.json").suites
    return sum(len(one.launches) for suite in suites for one in suite.measurements.values())


def _temporary(directory: Path) -> Iterator[Path]:
    """Yield the files that only a write in progress has."""
    for path in directory.rglob("*"):
        unnamed = path.name.startswith(".") and "." in path.name[1:]
        if unnamed or path.name.endswith(("-journal", "-wal", "-shm")):
            yield path


def try_end(project: StoredProject, fault: Fault, seed: int, *more: str) -> Tried | None:
    """End a session at a random moment, and let the same command run again.

    Return None if it ended by itself before the signal.
    """
    draw = random.Random(seed)
    options = ("--save-baseline=append", *OUTPUTS, *more)
    then_s = 2 * LAUNCH_S if draw.random() < 0.5 else project.whole_s(*options)
    with project.copied() as directory:
        session = project.start(directory, *options)
        launches = draw.randrange(project.launches)
        if not _end(session, fault, launches, draw.uniform(0, then_s), draw):
            return None
        said = session.output
        leaked = tuple(session.left())
        lost = _lost(project, directory)
        logged, is_stored = _logged(directory), stored(directory) != project.stored
        if not logged and not is_stored:
            lost += max(session.launches - _reported(directory) - 1, 0)  # one may be in flight
        elif logged:
            lost += max(session.launches - logged - 1, 0)
        for path in _temporary(directory):  # of another day
            os.utime(path, (0, 0))
        again = project.start(directory, *options)
        code = again.wait()
        lost += _lost(project, directory)
        leaked += tuple(path.name for path in _temporary(directory))
        survived = code == 0 and again.launches == project.launches - logged
        survived = survived and _is_named(session, said)
        twice = (stored(directory) - project.stored).total() - project.of_session
        if logged or not is_stored:  # else both sessions are there
            leaked += (f"{twice} of what is stored is there twice",) * (twice > 0)
        if not survived:
            print(
                f"seed {seed}: ended by {session.process.exitcode},"
                f" {logged} launches logged; the next one by {code} after {again.launches}",
                said,
                again.output,
                sep="\n",
                file=sys.stderr,
            )
    return Tried(
        fault=fault.name,
        where="a pytest session, at a random moment",
        seen=next((line for line in said.splitlines() if any(w in line for w in _SAYS)), ""),
        kept="what is stored, and its finished launches",
        survived=survived,
        lost=lost,
        leaked=leaked,
    )


def _is_named(session: Session, said: str) -> bool:
    """Return whether a user knows that the session was ended, if it was.

    A shell names the signal of a process that it ends. Once our files are closed pytest prints, and
    shows an interrupt by a traceback of its own.
    """
    code = session.process.exitcode or 0
    _, *tracebacks = said.split("Traceback")
    if tracebacks:
        is_of_pytest = "KeyboardInterrupt" in said or "/ddp_perf/" not in tracebacks[-1]
        return code != 0 and is_of_pytest
    if code == pytest.ExitCode.INTERRUPTED:
        return any(words in said for words in _SAYS)
    return code <= 0


def _lost(project: StoredProject, directory: Path) -> int:
    try:
        return (project.stored - stored(directory)).total()
    except DdpPerfError as error:
        print(error, file=sys.stderr)
        return project.stored.total()
