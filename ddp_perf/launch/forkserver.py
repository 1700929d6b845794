"""A launcher with forkservers that have imported torch: ranks start in tens of milliseconds."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

import msgspec

from ddp_perf.core.case import Case
from ddp_perf.core.launch import LaunchFailure, LaunchRequest, LaunchResult
from ddp_perf.core.subject import PACKAGES
from ddp_perf.core.work import CountRequest, RankCounted, StepWork
from ddp_perf.errors import LaunchError
from ddp_perf.launch.launcher import (
    Runtime,
    ScratchDirectory,
    check_device_order,
    package_alone,
    package_directory,
    server_environment,
)
from ddp_perf.launch.protocol import Pulse, open_pulse_memory, patience_with, read_hello
from ddp_perf.system.host.launch_platform import check_can_launch

# The driver's side of one forkserver process.


_OUTCOME: msgspec.json.Decoder[LaunchResult | LaunchFailure] = msgspec.json.Decoder(
    LaunchResult | LaunchFailure
)
_COUNTED: msgspec.json.Decoder[RankCounted | LaunchFailure] = msgspec.json.Decoder(
    RankCounted | LaunchFailure
)
_GOODBYE_S = 3.0
# The package takes the place of the working directory, which comes first on sys.path and may have a
# ddp_perf of its own, or modules that the revision of a side lacks.
_START_SERVER = (
    "import runpy, sys; sys.path[0] = sys.argv.pop(1);"
    " runpy.run_module('ddp_perf.launch.server', run_name='__main__', alter_sys=True)"
)
START_S = 300.0  # an import of torch from a cold network disk takes minutes


class ServerLostError(Exception):
    """The server and its ranks have ended; the text describes how."""


class ServerProcess:
    """A forkserver: it is started here, receives launches one by one, and is watched.

    Raises LaunchError if it does not start. Use it from the main thread: the server ends with the
    thread that started it (see ``die_with_parent``).
    """

    def __init__(
        self,
        interpreter: str,
        environ: Mapping[str, str],
        package: Path,
        directory: Path,
        preloaded: Sequence[str],
        *,
        working_directory: Path | None = None,
    ) -> None:
        if threading.current_thread() is not threading.main_thread():
            raise LaunchError(
                "ranks must be started from the main thread, since they end with it;"
                " call pytest there"
            )
        self.directory = directory
        self._output = directory / "server.out"
        memory = open_pulse_memory()
        self._pulse = Pulse(memory)
        ours, theirs = socket.socketpair()
        self._connection = Connection(ours.detach())
        with theirs, os.fdopen(memory):
            descriptors = theirs.fileno(), memory
            arguments = package, *descriptors, os.getpid(), directory, *preloaded
            self._process = self._run(
                [interpreter, "-c", _START_SERVER, *map(str, arguments)],
                server_environment(environ, package),
                descriptors,
                working_directory,
            )
        try:
            self.runtime = self._started(interpreter, package)
        except BaseException:  # also Ctrl-C during the import of torch
            self.close()
            raise

    def _run(
        self,
        command: Sequence[str],
        environ: Mapping[str, str],
        descriptors: tuple[int, int],
        working_directory: Path | None,
    ) -> subprocess.Popen[bytes]:
        with self._output.open("wb") as output:
            try:
                return subprocess.Popen(
                    command,
                    env=environ,
                    pass_fds=descriptors,
                    cwd=working_directory,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    start_new_session=True,  # the driver handles Ctrl-C
                )
            except OSError as error:
                raise LaunchError(
                    f"the forkserver ({command[0]}) cannot be started: {error.strerror}"
                ) from None

    def _started(self, interpreter: str, package: Path) -> Runtime:
        try:
            if self._connection.poll(START_S):
                hello = read_hello(self._connection.recv_bytes(), str(package.resolve()))
                assert hello.runtime is not None
                return hello.runtime
            why = f"no answer in {START_S:.0f} s; its process is {self._state()}"
        except (EOFError, ConnectionError):
            code = self._exit_code()
            self.close()  # it may still write the reason
            why = self._why_ended(code)
        raise LaunchError(
            f"the forkserver ({interpreter}), which starts the ranks, did not start: {why}"
        )

    def _exit_code(self) -> int | None:
        """Return the exit code of a server that ends by itself, or None if it does not."""
        try:
            return self._process.wait(_GOODBYE_S)
        except subprocess.TimeoutExpired:
            return None

    def _why_ended(self, code: int | None) -> str:
        """Return why a server ended at its start: its signal, its last line, or its exit code."""
        last = self.output_tail(1)
        if code is None:
            return last or "it closed its connection, and did not end"
        if code >= 0:
            return last or f"it ended with exit code {code}, and wrote nothing"
        name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
        hint = " (out of memory? see the kernel's log)" if code == -signal.SIGKILL else ""
        return f"it was killed by {name}{hint}" + (f"; its last line: {last}" if last else "")

    def launch(self, request: LaunchRequest) -> LaunchResult | LaunchFailure:
        """Return the outcome of the launch. Raises ServerLostError."""
        return _OUTCOME.decode(self._answer(request))

    def count(self, request: CountRequest) -> StepWork | LaunchFailure:
        """Return the counted step. Raises ServerLostError."""
        counted = _COUNTED.decode(self._answer(request))
        return counted.work if isinstance(counted, RankCounted) else counted

    def _answer(self, request: LaunchRequest | CountRequest) -> bytes:
        """Return the server's answer.

        Raises ServerLostError if the server ended, or was killed because it gave no sign of life
        for the deadline of a step (limited to 5 to 60 s). An interrupt ends the server.
        """
        patience_s = patience_with(request.case)
        try:
            self._connection.send_bytes(msgspec.json.encode(request))
            if not self._pulse.goes_on_until(self._connection.poll, patience_s):
                raise ServerLostError(self._end_silent(patience_s))
            return self._connection.recv_bytes()
        except (EOFError, ConnectionError):
            raise ServerLostError(self._describe_end()) from None
        except BaseException:
            self.close()
            raise

    def _end_silent(self, patience_s: float) -> str:
        state = self._state()
        self._process.kill()  # it would not notice a closed connection
        return (
            f"the forkserver (pid {self._process.pid}) gave no sign of life for {patience_s:.0f} s:"
            f" its process was {state}; it was killed with its ranks, and the next launch starts"
            " another. Check what stops processes here: a debugger, a scheduler, SIGSTOP"
        )

    def _describe_end(self) -> str:
        self.close()
        code = self._process.returncode
        end = f"signal {-code}" if code < 0 else f"exit code {code}"
        hint = "; out of memory? see the kernel's log" if code == -signal.SIGKILL else ""
        return f"the forkserver died ({end}), and the ranks with it{hint}"

    def _state(self) -> str:
        # Imported here: systems that only read results cannot import it.
        from ddp_perf.system.host.processes import describe_state, state_of

        return describe_state(state_of(self._process.pid))

    def close(self) -> None:
        """Close the connection, which ends the server and its ranks. Kill it if it does not end."""
        self._connection.close()
        try:
            self._process.wait(_GOODBYE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def output_tail(self, lines: int = 20) -> str:
        """Return the last lines that the server wrote on stdout and stderr."""
        if not self._output.exists():
            return ""
        text = self._output.read_text(encoding="utf-8", errors="replace")
        return "\n".join(text.splitlines()[-lines:])


# A launcher with forkservers that have imported torch: ranks start in tens of milliseconds.


class ForkserverLauncher:
    """A launcher that keeps one server process per environment and per preloaded workload.

    Torch and OpenMP read the environment when they are imported, so each environment needs its
    own server. A workload that takes long to import has its own server too: its ranks do not
    import it again, and the ranks of other workloads do not contain it.

    ``interpreter`` and ``environ`` are those of the servers, and ``package`` is the directory from
    which they import ddp_perf. This process never imports torch, so its own may differ. Ranks run
    in ``working_directory``; None: in that of this process. Use the launcher from the main thread
    (see ``ServerProcess``).
    """

    def __init__(
        self,
        *,
        interpreter: str = sys.executable,
        environ: Mapping[str, str] | None = None,
        package: Path | None = None,
        working_directory: Path | None = None,
    ) -> None:
        self._interpreter = interpreter
        self._environ = dict(os.environ if environ is None else environ)
        self._package = package_directory() if package is None else package
        self._working_directory = working_directory
        self._servers: dict[_ServerKey, ServerProcess] = {}
        self._scratch: ScratchDirectory | None = None  # made for the first server

    def nodes(self, case: Case) -> tuple[str, ...]:
        return ()

    def runtime(self, case: Case | None = None) -> Runtime:
        return self._server(case).runtime

    def launch(self, request: LaunchRequest) -> LaunchResult | LaunchFailure:
        server = self._server(request.case)
        try:
            return server.launch(request)
        except ServerLostError as lost:
            return self._lost(server, lost, request.case, request.round)

    def count(self, request: CountRequest) -> StepWork | LaunchFailure:
        """Count a step of one rank, on a CPU. Nothing is timed, so counts may run side by side.

        Raises LaunchError if ranks cannot be started.
        """
        case = msgspec.structs.replace(request.case, tier="cpu")
        server = self._server(case)
        try:
            return server.count(request)
        except ServerLostError as lost:
            return self._lost(server, lost, case, round_number=0)

    def _lost(
        self, server: ServerProcess, lost: ServerLostError, case: Case, round_number: int
    ) -> LaunchFailure:
        """Return the failure of a server that has ended: the next request starts another."""
        failure = LaunchFailure(
            case_id=case.id,
            round=round_number,
            kind="server",
            rank=None,
            detail=str(lost),
            output=server.output_tail(),
        )
        del self._servers[_server_key(case)]
        server.close()
        shutil.rmtree(server.directory, ignore_errors=True)
        return failure

    def close(self) -> None:
        for server in self._servers.values():
            server.close()
        self._servers.clear()
        if self._scratch is not None:
            self._scratch.close()
            self._scratch = None

    def _server(self, case: Case | None) -> ServerProcess:
        check_can_launch()
        key = _server_key(case)
        environ = {**self._environ, **dict(key.env)}
        if case is not None and case.tier == "gpu":
            check_device_order(environ)
        if key not in self._servers:
            self._scratch = self._scratch or ScratchDirectory()
            directory = Path(tempfile.mkdtemp(prefix="server-", dir=self._scratch.path))
            server = ServerProcess(
                self._interpreter,
                environ,
                self._importable(self._scratch.path),
                directory,
                key.preloaded,
                working_directory=self._working_directory,
            )
            self._servers[key] = server
        return self._servers[key]

    def _importable(self, scratch: Path) -> Path:
        """Return the directory from which the interpreter imports ddp_perf.

        Another interpreter must not find what is installed beside it for this one, as torch.
        """
        if self._interpreter == sys.executable:
            return self._package
        return package_alone(self._package, scratch)


class _ServerKey(NamedTuple):
    env: frozenset[tuple[str, str]]
    preloaded: tuple[str, ...]  # workloads of the package that are imported before the fork


def _server_key(case: Case | None) -> _ServerKey:
    if case is None:
        return _ServerKey(frozenset(), ())
    preloaded = (case.workload,) if case.workload in PACKAGES else ()
    return _ServerKey(frozenset(case.env.items()), preloaded)
