"""Ends of a pytest session with real ranks: no process of its family is left, and no file.

The driver gets a signal at a random moment between its start and its end, or its server stops.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import msgspec
import psutil

from tests.faults.matrix import Tried
from tests.projects import INI, REPOSITORY, TINY

_MARK = "DDP_PERF_FAMILY"
_COMMAND = (sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--save-baseline")
_OF_SERVER = (0.5, 0.9)  # of a session: before, the server imports torch, for 300 s at most
_GONE_S = 30.0  # for the kernel, on a busy machine


class FamilyFault(msgspec.Struct, frozen=True, kw_only=True):
    """A signal to the driver, or to its server."""

    name: str
    signal: signal.Signals
    of_server: bool = False
    said: tuple[str, ...] = ()  # of a server one of these: while it runs, or while it starts
    kept: str = "what is stored"


FAULTS = (
    FamilyFault(name="SIGKILL of the driver, with real ranks", signal=signal.SIGKILL),
    FamilyFault(name="Ctrl-C, with real ranks", signal=signal.SIGINT),
    FamilyFault(name="SIGTERM, with real ranks", signal=signal.SIGTERM),
    FamilyFault(
        name="SIGSTOP of the server",
        signal=signal.SIGSTOP,
        of_server=True,
        said=(
            "gave no sign of life for 5 s: its process is stopped (T)",
            "did not start: no answer in 300 s: its process is stopped (T)",
        ),
        kept="the other cases",
    ),
    FamilyFault(
        name="SIGKILL of the server",
        signal=signal.SIGKILL,
        of_server=True,
        said=("ended (SIGKILL)", "did not start: SIGKILL"),
        kept="the other cases",
    ),
)


class Family:
    """A session whose processes are known by a variable, also those that lost their parents."""

    def __init__(self, directory: Path) -> None:
        self._mark = uuid.uuid4().hex
        self.temporary = directory / "tmp"
        self.temporary.mkdir(exist_ok=True)
        environ = {**os.environ, _MARK: self._mark, "TMPDIR": str(self.temporary)}
        environ["TORCHINDUCTOR_CACHE_DIR"] = str(directory / "cache")  # torch keeps it
        self._output = directory / "output"
        with self._output.open("wb") as output:
            self.driver = subprocess.Popen(
                _COMMAND,
                cwd=directory,
                env=environ,
                stdout=output,
                stderr=subprocess.STDOUT,
                # A shell that runs this in the background has it ignore the signal.
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
            )

    def members(self) -> Iterator[psutil.Process]:
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.environ().get(_MARK) == self._mark:
                    yield process

    def server(self) -> psutil.Process | None:
        """Return its server; None: it ended before it had one."""
        while self.driver.poll() is None:
            for process in self.members():
                with contextlib.suppress(psutil.Error):
                    if "ddp_perf.launch.server" in " ".join(process.cmdline()):
                        return process
            time.sleep(0.01)
        return None

    def left(self) -> Iterator[str]:
        """Yield the processes that outlive the driver for longer than the kernel needs."""
        psutil.wait_procs(list(self.members()), timeout=_GONE_S)
        for process in self.members():
            yield f"process {process.pid}"

    @property
    def output(self) -> str:
        return self._output.read_text(encoding="utf-8")


def make_project(directory: Path) -> float:
    """Make a project of real launches; return the seconds of a session."""
    shutil.copytree(REPOSITORY / "tests/perf", directory / "tests")
    for name in ("bench_configs", "baselines"):
        (directory / name).mkdir()
    (directory / "bench_configs/tiny.yaml").write_text(TINY + "step_deadline_s: 5\n")
    (directory / "pytest.ini").write_text(INI.format(addopts="", more="pythonpath = .\n"))
    begun = time.monotonic()
    family = Family(directory)
    assert family.driver.wait() == 0, family.output
    whole_s = time.monotonic() - begun
    shutil.rmtree(directory / "baselines")  # each session is a first one, which real times pass
    (directory / "baselines").mkdir()
    return whole_s


def try_family(project: Path, whole_s: float, fault: FamilyFault, seed: int) -> Tried | None:
    """Send a signal at a random moment; return None if the session needed its target no more."""
    draw = random.Random(seed)
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name) / "project"
        shutil.copytree(project, directory)
        family = Family(directory)
        target: subprocess.Popen[bytes] | psutil.Process | None = family.driver
        share = draw.uniform(*_OF_SERVER) if fault.of_server else draw.random()
        with contextlib.suppress(subprocess.TimeoutExpired):
            family.driver.wait(share * whole_s)
        if fault.of_server:
            target = family.server()
        if family.driver.poll() is not None or target is None:
            return None
        with contextlib.suppress(psutil.NoSuchProcess):
            target.send_signal(fault.signal)
        begun = time.monotonic()
        code = family.driver.wait()
        took_s = time.monotonic() - begun
        leaked = tuple(family.left())
        said = family.output
        if fault.of_server and code == 0:
            return None
        again = Family(directory)
        named = not fault.said or _says(fault, said)
        survived = again.driver.wait() == 0 and (code != 0) and named
        leaked += tuple(again.left()) + tuple(str(path) for path in again.temporary.iterdir())
    return Tried(
        fault=fault.name,
        where="a pytest session, at a random moment",
        seen=next((line for line in said.splitlines() if _says(fault, line)), ""),
        kept=fault.kept,
        survived=survived,
        leaked=leaked,
        noticed_s=took_s,
    )


def _says(fault: FamilyFault, text: str) -> bool:
    return any(each in text for each in fault.said or ("ended by", "ddp: interrupted"))
