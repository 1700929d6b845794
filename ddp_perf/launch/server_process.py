"""The driver's side of one forkserver process."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import threading
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path

import msgspec

from ddp_perf.core.launch import LaunchFailure, LaunchRequest, LaunchResult
from ddp_perf.core.work import CountRequest, RankCounted, StepWork
from ddp_perf.errors import LaunchError
from ddp_perf.launch.environment import server_environment
from ddp_perf.launch.launcher import Runtime
from ddp_perf.launch.protocol import read_hello
from ddp_perf.launch.pulse import Pulse, open_pulse_memory, patience_with

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
