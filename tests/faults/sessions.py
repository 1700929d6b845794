"""Pytest sessions whose launches are played: each in a process of its own, in a real project.

A process has everything imported when it begins, so that a session takes half a second.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.synchronize import Event
from pathlib import Path
from unittest import mock

import psutil
import pytest

from ddp_perf.core.launch import LaunchRequest, LaunchResult
from ddp_perf.system.lease import LEASES
from tests.builders import FakeLauncher, make_launch
from tests.projects import INI, REPOSITORY, TINY
from tests.repositories import Repository

LAUNCH_S = 0.002
_PRELOADED = (
    "torch",
    "matplotlib.figure",
    "matplotlib.backends.backend_svg",
    "scipy.stats",
    "rich.table",
    "ddp_perf.plugin.hooks",
    "ddp_perf.session.measure.suite",
)
_OPTIONS = (
    "--ddp-budget=0",
    "--assert=plain",  # else what is preloaded could not be rewritten
    "-p",
    "no:hypothesispytest",
    "-p",
    "no:cacheprovider",
)
_WRITTEN = "baselines artifacts report results.json history.sqlite* place* output witness leases"
Trouble = Callable[[Path, LaunchRequest], None]  # what goes wrong at a launch


def no_trouble(directory: Path, request: LaunchRequest) -> None:
    """Let the launch run."""


def _play(directory: Path, options: Sequence[str], launched: Event, trouble: Trouble) -> None:
    """Run the session in this process, as its leader, and end as pytest's command ends."""
    os.setsid()
    os.chdir(directory)
    os.environ[LEASES] = str(directory / "leases")  # no rank runs
    signal.signal(signal.SIGINT, signal.default_int_handler)  # also if a shell ignores it
    output = os.open("output", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    witness = os.open("witness", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(output, 1)
    os.dup2(output, 2)

    def answer(request: LaunchRequest) -> LaunchResult:
        launched.set()
        trouble(directory, request)
        time.sleep(LAUNCH_S)  # is the length of a launch; nothing waits for it
        result = make_launch(request.case, request.round)
        os.write(witness, b".")
        return result

    launcher = "ddp_perf.session.measure.machine.ServerLauncher"
    # Which package each module is of takes longer than the whole session.
    packages = mock.patch("importlib.metadata.packages_distributions", return_value={})
    try:
        with mock.patch(launcher, return_value=FakeLauncher(answer)), packages:
            code = pytest.main([*options, *_OPTIONS])
    except KeyboardInterrupt:  # Python ends by the signal
        traceback.print_exc()
        sys.stdout.flush()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    sys.stdout.flush()
    os._exit(code)


class Session:
    """A session that runs in a project's directory."""

    def __init__(
        self,
        context: multiprocessing.context.ForkServerContext,
        directory: Path,
        options: Sequence[str],
        trouble: Trouble,
    ) -> None:
        """Start it; return once its first launch runs, or it has ended without one."""
        self.directory = directory
        launched = context.Event()
        self.process = context.Process(target=_play, args=(directory, options, launched, trouble))
        self.process.start()
        while self.process.is_alive() and not launched.wait(timeout=0.1):
            pass

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

    def left(self) -> Iterator[str]:
        """Yield the processes that outlive it."""
        for pid in psutil.pids():
            with contextlib.suppress(ProcessLookupError):
                if os.getsid(pid) == self.process.pid:
                    yield f"process {pid}"


class Project:
    """A project in git with a stored session, of which each trial gets a copy."""

    def __init__(self, directory: Path, *options: str) -> None:
        """Make it, and measure its first session with these options."""
        self.directory = directory
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload([*_PRELOADED, __name__])
        shutil.copytree(REPOSITORY / "tests/perf", directory / "tests")
        for name in ("bench_configs", "baselines", "place"):
            (directory / name).mkdir()
        repository = Repository(directory)
        repository.write(
            {
                ".gitignore": "\n".join(_WRITTEN.split()),
                "pytest.ini": INI.format(addopts="", more="pythonpath = .\n"),
                "bench_configs/tiny.yaml": TINY,
            }
        )
        repository.git("add", "--all")
        repository.git("commit", "--quiet", "--message", "a project")
        session = self.start(directory, "--save-baseline=missing", *options)
        assert session.wait() == 0, session.output
        self.launches = session.launches

    def start(self, directory: Path, *options: str, trouble: Trouble = no_trouble) -> Session:
        return Session(self._context, directory, options, trouble)

    @contextlib.contextmanager
    def copied(self) -> Iterator[Path]:
        with tempfile.TemporaryDirectory() as name:
            shutil.copytree(self.directory, Path(name) / "project")
            yield Path(name) / "project"
