"""Ends of a pytest session by signals, at any moment: what is read afterwards, and what is left.

The session is pytest's own, with every file that it can write; only its launches are played. It
runs in a new process that has everything imported, in a copy of a project with a stored session.
Then the same command runs again, and must go on from what was measured.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from multiprocessing.synchronize import Event
from pathlib import Path
from unittest import mock

import msgspec
import psutil
import pytest

from ddp_perf.baselines.store import read_baseline
from ddp_perf.core.launch import LaunchRequest, LaunchResult
from ddp_perf.errors import DdpPerfError
from ddp_perf.history.store import HistoryStore
from ddp_perf.session.result import read_results
from tests.builders import FakeLauncher, make_launch
from tests.faults.matrix import Tried
from tests.projects import INI, REPOSITORY, TINY
from tests.repositories import Repository

LAUNCH_S = 0.002
PRELOADED = (
    "torch",
    "matplotlib.figure",
    "matplotlib.backends.backend_svg",
    "scipy.stats",
    "rich.table",
    "ddp_perf.plugin.hooks",
    "ddp_perf.session.measure.suite",
)
OPTIONS = (
    "--ddp-json=results.json",
    "--ddp-history=sqlite:///history.sqlite",
    "--ddp-budget=0",
    "--assert=plain",  # else what is preloaded could not be rewritten
    "-p",
    "no:hypothesispytest",
    "-p",
    "no:cacheprovider",
)
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


def play(directory: Path, options: tuple[str, ...], launched: Event) -> None:
    """Run the session in this process, as its leader, and end as pytest's command ends."""
    os.setsid()
    os.chdir(directory)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # also if a shell ignores it
    output = os.open("output", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    witness = os.open("witness", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(output, 1)
    os.dup2(output, 2)

    def answer(request: LaunchRequest) -> LaunchResult:
        launched.set()
        time.sleep(LAUNCH_S)  # is the length of a launch; nothing waits for it
        result = make_launch(request.case, request.round)
        os.write(witness, b".")
        return result

    launcher = "ddp_perf.session.measure.machine.ServerLauncher"
    # Which package each module is of takes longer than the whole session.
    packages = mock.patch("importlib.metadata.packages_distributions", return_value={})
    try:
        with mock.patch(launcher, return_value=FakeLauncher(answer)), packages:
            code = pytest.main([*options, *OPTIONS])
    except KeyboardInterrupt:  # Python ends by the signal
        traceback.print_exc()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    os._exit(code)


class Session:
    """A session that runs in a project's directory; it returns once its first launch runs."""

    def __init__(
        self,
        context: multiprocessing.context.ForkServerContext,
        directory: Path,
        *options: str,
    ) -> None:
        self.directory = directory
        started = context.Event()
        self.process = context.Process(target=play, args=(directory, options, started))
        self.process.start()
        while not started.wait(timeout=0.1):
            if not self.process.is_alive():  # it went on from whole launches, or it failed
                return

    @property
    def launches(self) -> int:
        """The number of its launches that are finished."""
        return (self.directory / "witness").stat().st_size

    @property
    def output(self) -> str:
        return (self.directory / "output").read_text(encoding="utf-8")

    def wait(self) -> int | None:
        """Return its exit code, once it has ended."""
        self.process.join()
        return self.process.exitcode

    def end(self, fault: Fault, launches: int, then_s: float, draw: random.Random) -> bool:
        """Send the signals, the first one so long after so many launches; return whether it ran."""
        while self.process.is_alive() and self.launches < launches:
            time.sleep(LAUNCH_S / 4)
        self.process.join(then_s)
        hit = self.process.is_alive()
        for number in fault.signals:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.process.pid or 0, number)
            self.process.join(draw.uniform(0, 0.02))
        self.process.join()
        return hit

    def left(self) -> Iterator[str]:
        """Yield the processes that outlive it."""
        for pid in psutil.pids():
            with contextlib.suppress(ProcessLookupError):
                if os.getsid(pid) == self.process.pid:
                    yield f"process {pid}"


class Project:
    """A project with a stored session, of which each trial gets a copy."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload([*PRELOADED, __name__])
        shutil.copytree(REPOSITORY / "tests/perf", directory / "tests")
        repository = Repository(directory)
        (directory / "bench_configs").mkdir()
        (directory / "baselines").mkdir()
        written = "baselines artifacts report results.json history.sqlite* output witness"
        repository.write(
            {
                ".gitignore": "\n".join(written.split()),
                "pytest.ini": INI.format(addopts="", more="pythonpath = .\n"),
                "bench_configs/tiny.yaml": TINY,
            }
        )
        repository.git("add", "--all")
        repository.git("commit", "--quiet", "--message", "a project")
        session = self.start(directory, "--save-baseline=missing")
        assert session.wait() == 0, session.output
        self.launches, self.stored = session.launches, stored(directory)
        self._whole_s = dict[tuple[str, ...], float]()

    def start(self, directory: Path, *options: str) -> Session:
        (directory / "results.json").unlink(missing_ok=True)
        return Session(self._context, directory, *options)

    @contextlib.contextmanager
    def copied(self) -> Iterator[Path]:
        with tempfile.TemporaryDirectory() as name:
            shutil.copytree(self.directory, Path(name) / "project")
            yield Path(name) / "project"

    def whole_s(self, *options: str) -> float:
        """Return how long a session takes from its first launch."""
        if options not in self._whole_s:
            with self.copied() as directory:
                session = self.start(directory, *options)
                begun = time.monotonic()
                assert session.wait() == 0, session.output
                self._whole_s[options] = time.monotonic() - begun
        return self._whole_s[options]


def stored(directory: Path) -> set[bytes]:
    """Read every file of a project by the suite's reader, and return what must never be lost.

    Raises DdpPerfError for a file that cannot be read.
    """
    found = set[bytes]()
    for path in (directory / "baselines").glob("*.json"):
        for case, baseline in read_baseline(path).cases.items():
            found.update(msgspec.json.encode((case, one)) for one in baseline.sessions)
    for path in (directory / "baselines/structure").glob("*.json"):
        found.add(path.read_bytes())
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


def try_end(project: Project, fault: Fault, seed: int, *more: str) -> Tried | None:
    """End a session at a random moment, and let the same command run again.

    Return None if it ended by itself before the signal.
    """
    draw = random.Random(seed)
    options = ("--save-baseline=append", *more)
    then_s = 2 * LAUNCH_S if draw.random() < 0.5 else project.whole_s(*options)
    with project.copied() as directory:
        session = project.start(directory, *options)
        launches = draw.randrange(project.launches)
        if not session.end(fault, launches, draw.uniform(0, then_s), draw):
            return None
        said = session.output
        leaked = tuple(session.left())
        lost = _lost(project, directory)
        logged = _logged(directory)
        if not logged and stored(directory) == project.stored:
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
        if not survived:
            print(said, again.output, sep="\n", file=sys.stderr)
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
    if "Traceback" in said:
        return code != 0 and "KeyboardInterrupt" in said
    if code == pytest.ExitCode.INTERRUPTED:
        return any(words in said for words in _SAYS)
    return code <= 0


def _lost(project: Project, directory: Path) -> int:
    try:
        return len(project.stored - stored(directory))
    except DdpPerfError as error:
        print(error, file=sys.stderr)
        return len(project.stored)
