"""Launches from a forkserver that has torch preloaded: fresh ranks in tens of milliseconds."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

import msgspec

import ddp_perf
from ddp_perf.core.case import MOST_EXTRA_WARMUPS, Case
from ddp_perf.core.launch_request import LaunchRequest
from ddp_perf.core.models import PACKAGES
from ddp_perf.core.result import LaunchFailure, LaunchResult
from ddp_perf.errors import LaunchError
from ddp_perf.launch.launcher import Runtime
from ddp_perf.system.launch_platform import check_can_launch

_OUTCOME: msgspec.json.Decoder[LaunchResult | LaunchFailure] = msgspec.json.Decoder(
    LaunchResult | LaunchFailure
)
_RUNTIME = msgspec.json.Decoder(Runtime)
_GOODBYE_S = 3.0
_LONGEST_S = 7 * 86_400.0  # poll(2) takes no more than 24 days
_START_S = 300.0  # importing torch from a cold network disk takes minutes


class ForkserverLauncher:
    """One server process per environment, since torch and OpenMP read theirs at import; and
    per workload that takes long to import, so that its ranks need not, nor others carry it.

    ``interpreter`` and ``environ`` are those of the servers, not necessarily of this
    process, which never imports torch. Use from the main thread (see ``die_with_parent``).
    """

    def __init__(
        self, *, interpreter: str = sys.executable, environ: Mapping[str, str] | None = None
    ) -> None:
        self._interpreter = interpreter
        self._environ = dict(os.environ if environ is None else environ)
        self._servers: dict[_ServerKey, _Server] = {}
        self._directory = Path(tempfile.mkdtemp(prefix="ddp-perf-"))

    def runtime(self, case: Case | None = None) -> Runtime:
        return self._server(case).runtime

    def launch(self, request: LaunchRequest) -> LaunchResult | LaunchFailure:
        server = self._server(request.case)
        outcome = server.launch(request)
        if outcome is not None:
            return outcome
        failure = LaunchFailure(
            case_id=request.case.id,
            round=request.round,
            kind="server",
            rank=None,
            detail=f"the forkserver died ({server.describe_end()}), and the ranks with it",
            output=server.output_tail(),
        )
        self._forget(request.case)
        return failure

    def close(self) -> None:
        for server in self._servers.values():
            server.close()
        self._servers.clear()
        shutil.rmtree(self._directory, ignore_errors=True)

    def _server(self, case: Case | None) -> _Server:
        key = _server_key(case)
        if key not in self._servers:
            directory = self._directory / f"server{len(self._servers)}"
            directory.mkdir(parents=True)
            environ = {**self._environ, **dict(key.env)}
            self._servers[key] = _Server(self._interpreter, environ, directory, key.preloaded)
        return self._servers[key]

    def _forget(self, case: Case) -> None:
        """A server that died is replaced at the next launch."""
        server = self._servers.pop(_server_key(case))
        server.close()
        shutil.rmtree(server.directory, ignore_errors=True)


class _ServerKey(NamedTuple):
    env: frozenset[tuple[str, str]]
    preloaded: tuple[str, ...]  # own workloads that are imported before the ranks are forked


def _server_key(case: Case | None) -> _ServerKey:
    if case is None:
        return _ServerKey(frozenset(), ())
    preloaded = (case.workload,) if case.workload in PACKAGES else ()
    return _ServerKey(frozenset(case.env.items()), preloaded)


class _Server:
    """The driver's end of one forkserver process."""

    def __init__(
        self,
        interpreter: str,
        environ: dict[str, str],
        directory: Path,
        preloaded: tuple[str, ...],
    ) -> None:
        check_can_launch()
        if threading.current_thread() is not threading.main_thread():
            raise LaunchError("ranks must be started from the main thread: they die with it")
        self.directory = directory
        self._output = directory / "server.out"
        ours, theirs = socket.socketpair()
        with theirs, self._output.open("wb") as output:
            self._process = subprocess.Popen(
                [
                    *(interpreter, "-m", "ddp_perf.launch.server"),
                    *(str(theirs.fileno()), str(os.getpid()), str(directory), *preloaded),
                ],
                env=_server_environment(environ),
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # Ctrl-C is the driver's to handle
            )
        self._connection = Connection(ours.detach())
        try:
            if not self._connection.poll(_START_S):
                raise EOFError  # as good as dead
            self.runtime = _RUNTIME.decode(self._connection.recv_bytes())
        except (EOFError, ConnectionError):
            self.close()
            raise LaunchError(
                f"the forkserver ({interpreter}) did not start: {self.output_tail(1)}"
            ) from None
        except BaseException:  # Ctrl-C while torch is imported
            self.close()
            raise

    def launch(self, request: LaunchRequest) -> LaunchResult | LaunchFailure | None:
        """None when the server died. Interrupted, the server is ended with its ranks."""
        try:
            self._connection.send_bytes(msgspec.json.encode(request))
            if not self._connection.poll(_longest_s(request)):
                self.close()  # its own deadlines did not end it: a stopped or wedged server
                return None
            return _OUTCOME.decode(self._connection.recv_bytes())
        except (EOFError, ConnectionError):
            return None
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Hang up, which ends the server and its ranks; kill it when it does not listen."""
        self._connection.close()
        try:
            self._process.wait(_GOODBYE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def describe_end(self) -> str:
        """How the process ended, in words."""
        self.close()
        code = self._process.returncode
        return f"signal {-code}" if code < 0 else f"exit code {code}"

    def output_tail(self, lines: int = 20) -> str:
        text = (
            self._output.read_text(encoding="utf-8", errors="replace")
            if self._output.exists()
            else ""
        )
        return "\n".join(text.splitlines()[-lines:])


def _longest_s(request: LaunchRequest) -> float:
    """What the supervisor's own deadlines can add up to, and then a minute."""
    schedule = request.case.schedule
    extra = MOST_EXTRA_WARMUPS if request.case.tier == "gpu" else 0
    steps = schedule.steps + extra + 10
    total = schedule.start_deadline_s + steps * schedule.step_deadline_s + 60
    return min(total, _LONGEST_S)


def _server_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """What keeps the server fit to be forked.

    It must import this very package, installed there or not; stay single-threaded, where
    numpy's OpenBLAS would start a thread per core at import; and never initialise CUDA, which
    ``torch.cuda.is_available()`` does unless it may ask NVML.
    """
    package = str(Path(ddp_perf.__file__).parents[1])
    paths = [package, environ.get("PYTHONPATH", "")]
    python_path = os.pathsep.join(filter(None, paths))
    return {
        "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",  # the order in which NVML counts
        **environ,
        "OPENBLAS_NUM_THREADS": "1",
        "PYTHONPATH": python_path,
    }
