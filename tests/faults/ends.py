"""Ends of a pytest session by signals, at any moment: what is read afterwards, and what is left.

The session is pytest's own, with every file that it can write; only its launches are played. It
runs in a new process that has everything imported, in a copy of a project with a stored session.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import random
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
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
from ddp_perf.system.lease import LEASES
from tests.builders import FakeLauncher, make_launch
from tests.faults.matrix import Tried
from tests.projects import INI, REPOSITORY, TINY

LAUNCH_S = 0.002
PRELOADED = ("torch", "matplotlib.figure", "matplotlib.backends.backend_svg", "scipy.stats")
OPTIONS = (
    "--ddp-json=results.json",
    "--ddp-history=sqlite:///history.sqlite",
    "--ddp-report=report",
    "--ddp-budget=0",
    "-k",
    "step_time",
    "-p",
    "no:cacheprovider",
)


Trouble = Callable[[Path, LaunchRequest], None]  # what goes wrong at a launch


def no_trouble(directory: Path, request: LaunchRequest) -> None:
    """Let the launch run."""


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """Signals to a session that measures."""

    name: str
    signals: tuple[signal.Signals, ...]
    kept: str


_WHOLE = "what was stored before it, and each file as a whole"
FAULTS = (
    Fault(name="SIGKILL of the session", signals=(signal.SIGKILL,), kept=_WHOLE),
    Fault(name="Ctrl-C", signals=(signal.SIGINT,), kept=_WHOLE),
    Fault(name="Ctrl-C twice", signals=(signal.SIGINT, signal.SIGINT), kept=_WHOLE),
    Fault(name="SIGTERM", signals=(signal.SIGTERM,), kept=_WHOLE),
    Fault(name="SIGTERM twice", signals=(signal.SIGTERM, signal.SIGTERM), kept=_WHOLE),
    Fault(name="SIGHUP", signals=(signal.SIGHUP,), kept=_WHOLE),
)


def play(
    directory: Path, arguments: Sequence[str], launched: Event, trouble: Trouble = no_trouble
) -> None:
    """Run the session in this process, as its leader, and exit with its code."""
    os.setsid()
    os.chdir(directory)
    os.environ[LEASES] = str(directory / "leases")  # no rank runs
    signal.signal(signal.SIGINT, signal.default_int_handler)  # also if a shell ignores it
    output = os.open("output", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(output, 1)
    os.dup2(output, 2)

    def answer(request: LaunchRequest) -> LaunchResult:
        launched.set()
        trouble(directory, request)
        time.sleep(LAUNCH_S)  # is the length of a launch; nothing waits for it
        return make_launch(request.case, request.round)

    launcher = "ddp_perf.session.measure.machine.ServerLauncher"
    with mock.patch(launcher, return_value=FakeLauncher(answer)):
        os._exit(pytest.main([*arguments]))


class Project:
    """A project with a stored session, of which each trial gets a copy."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload([*PRELOADED, __name__])
        shutil.copytree(REPOSITORY / "tests/perf", directory / "tests")
        (directory / "pytest.ini").write_text(INI.format(addopts="", more="pythonpath = .\n"))
        (directory / "bench_configs").mkdir()
        (directory / "baselines").mkdir()
        (directory / "bench_configs/tiny.yaml").write_text(TINY)
        process = self.start(directory, "missing")
        begun = time.monotonic()  # of its first launch
        process.join()
        self.whole_s = time.monotonic() - begun
        self.stored = stored(directory)

    def start(self, directory: Path, mode: str) -> multiprocessing.process.BaseProcess:
        """Start a session, and return once its first launch runs."""
        launched = self._context.Event()
        arguments = (f"--save-baseline={mode}", *OPTIONS)
        process = self._context.Process(target=play, args=(directory, arguments, launched))
        process.start()
        if not launched.wait(timeout=120):
            raise AssertionError((directory / "output").read_text(encoding="utf-8"))
        return process

    def run(
        self,
        directory: Path,
        mode: str,
        options: Sequence[str] = OPTIONS,
        trouble: Trouble = no_trouble,
    ) -> int | None:
        """Run a session to its end, and return its exit code."""
        arguments = (f"--save-baseline={mode}", *options)
        launched = self._context.Event()
        process = self._context.Process(target=play, args=(directory, arguments, launched, trouble))
        process.start()
        process.join()
        return process.exitcode


def stored(directory: Path) -> set[bytes]:
    """Read every file of a project by the suite's reader, and return what must never be lost.

    Raises DdpPerfError for a file that cannot be read.
    """
    found = set[bytes]()
    for path in (directory / "baselines").glob("*.json"):
        for case, baseline in read_baseline(path).cases.items():
            found.update(msgspec.json.encode((case, one)) for one in baseline.sessions)
    if (directory / "results.json").exists():
        read_results(directory / "results.json")
    url = f"sqlite:///{directory / 'history.sqlite'}"
    with contextlib.closing(HistoryStore(url, create=False)) as store:
        found.update(msgspec.json.encode(record) for record in store.records())
    for page in (directory / "report").rglob("*.html"):
        if not page.read_text(encoding="utf-8").rstrip().endswith("</html>"):
            raise DdpPerfError(f"{page}: is cut short")
    return found


def _temporary(directory: Path) -> Iterator[Path]:
    """Yield the files that only a write in progress has."""
    for path in directory.rglob("*"):
        unnamed = path.name.startswith(".") and "." in path.name[1:]
        if unnamed or path.name.endswith(("-journal", "-wal", "-shm")):
            yield path


def _end(process: multiprocessing.process.BaseProcess, fault: Fault, draw: random.Random) -> None:
    for number in fault.signals:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid or 0, number)
        process.join(draw.uniform(0, 0.02))
    process.join()


def _alive(session: int) -> Iterator[str]:
    for pid in psutil.pids():
        with contextlib.suppress(ProcessLookupError):
            if os.getsid(pid) == session:
                yield f"process {pid}"


def try_end(project: Project, fault: Fault, seed: int) -> Tried:
    """End a session at a random moment, and let the same command run again."""
    draw = random.Random(seed)
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name) / "project"
        shutil.copytree(project.directory, directory)
        process = project.start(directory, "append")
        process.join(draw.uniform(0, project.whole_s))
        _end(process, fault, draw)
        output = (directory / "output").read_text(encoding="utf-8")
        leaked = tuple(_alive(process.pid or 0))
        lost = _lost(project, directory)
        for path in _temporary(directory):  # of another day
            os.utime(path, (0, 0))
        again = project.run(directory, "append")
        lost += _lost(project, directory)
        leaked += tuple(path.name for path in _temporary(directory))
    return Tried(
        fault=fault.name,
        where="a pytest session, at a random moment",
        seen=next((line for line in output.splitlines() if "ended by" in line), "nothing"),
        kept=fault.kept,
        survived=again == 0 and "Traceback" not in output,
        lost=lost,
        leaked=leaked,
    )


def _lost(project: Project, directory: Path) -> int:
    try:
        return len(project.stored - stored(directory))
    except DdpPerfError:
        return len(project.stored)
