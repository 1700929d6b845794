"""The driver's side of a server: it is started here, gets requests one by one, and is watched."""

from __future__ import annotations

import contextlib
import math
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Hashable, Iterable, Mapping
from multiprocessing.connection import wait
from pathlib import Path
from typing import TypeVar

import msgspec

from ddp_perf.errors import LaunchError
from ddp_perf.launch.engine import Transport
from ddp_perf.launch.launcher import Runtime
from ddp_perf.launch.protocol import (
    Answer,
    BrokenMessageError,
    Channel,
    EndRequest,
    Hello,
    Request,
    read_hello,
    start_line,
)
from ddp_perf.system.files import UNREADABLE
from ddp_perf.system.host.processes import describe_state, state_of

_MESSAGE: msgspec.json.Decoder[Answer | Hello] = msgspec.json.Decoder(Answer | Hello)
START_S = 300.0  # an import of torch from a cold network disk takes minutes
GRACE_S = 10.0  # for the other nodes to fail by themselves after one has failed
_READINGS = 5  # without a beat, before a server counts as silent
_TERM_S = 10.0  # for a command to end what it started elsewhere
_EOF_S = 5.0  # for a command to end that has closed its output


class ServerLostError(Exception):
    """The server and its ranks have ended; the text describes how."""


class RankServer:
    """A server, which begins to start when this is made; ``greet`` waits for it.

    ``directory`` is for the server's own messages. Raises LaunchError if it cannot be started.
    Use it from the main thread: a server of this machine ends with the thread that started it.
    """

    def __init__(
        self,
        transport: Transport,
        variables: Mapping[str, str],
        preloaded: tuple[str, ...],
        directory: Path,
    ) -> None:
        if transport.is_child and threading.current_thread() is not threading.main_thread():
            raise LaunchError(
                "ranks must be started from the main thread, since they end with it;"
                " call pytest there"
            )
        self.directory = directory
        self._transport = transport
        variables = {**transport.variables, **variables}
        own = variables if transport.is_child else {}  # it need not execute itself for them
        self._errors = directory / "server.err"
        with self._errors.open("wb") as errors:
            try:
                self._process = subprocess.Popen(
                    transport.words,
                    bufsize=0,
                    env={**transport.environ, **own},
                    cwd=transport.working_directory,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    start_new_session=True,  # the driver handles Ctrl-C
                )
            except OSError as error:
                raise LaunchError(f"{transport.who} cannot be started: {error.strerror}") from None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._channel = Channel(self._process.stdout.fileno(), self._process.stdin.fileno())
        self._beats = self._silent = 0
        self._runtime: Runtime | None = None
        self._started_by = time.monotonic() + START_S
        with contextlib.suppress(BrokenPipeError):  # its output may have the reason
            self._channel.send_line(
                start_line(
                    dict(variables),
                    preloaded,
                    directory=str(directory) if transport.is_child else None,
                    parent=os.getpid() if transport.is_child else None,
                )
            )

    @property
    def is_closed(self) -> bool:
        """True if it was ended: its process group may be another one by now."""
        assert self._process.stdout is not None
        return self._process.stdout.closed

    @property
    def is_elsewhere(self) -> bool:
        """True if the process here is only the command that leads to it."""
        return not self._transport.is_child

    @property
    def has_started(self) -> bool:
        """True after it was greeted."""
        return self._runtime is not None

    @property
    def has_ended(self) -> bool:
        """True if its command has ended, and its ranks with it."""
        return self._process.poll() is not None

    @property
    def runtime(self) -> Runtime:
        """The versions that its ranks run on, after ``greet``."""
        assert self._runtime is not None
        return self._runtime

    def greet(self) -> None:
        """Wait until it has imported torch. Raises LaunchError if it ends, or takes too long."""
        try:
            hello = self._channel.receive(max(self._started_by - time.monotonic(), 0))
            if hello is not None:
                self._runtime = read_hello(hello, self._transport.package).runtime
                return
            why = f"no answer in {START_S:.0f} s{self._state()}"
            close_all([self], _EOF_S)
            why += f": {last}" if (last := self._last_lines()) else ""
        except EOFError:
            self.close()  # it may still write the reason
            why = self._why_ended()
        except BaseException:  # also Ctrl-C during the import of torch
            self.close()
            raise
        raise LaunchError(f"{self._transport.who} did not start: {why}")

    def _why_ended(self) -> str:
        printed, last = self.output_tail(), self._last_lines()
        why = self._end() + self._hint() + (f": {last}" if last else ", no output")
        frames, remedy = re.findall(r'File "(.+)", line \d+, in (.+)', printed), ""
        # From Python 3.13 on a traceback also shows the command of `python -c`, which names it.
        if re.search(r"No module named '?ddp_perf|specification for '?ddp_perf", printed):
            remedy = self._transport.remedy
        elif frames and frames[-1][0].endswith("/launch/server.py") and "<module>" in frames[-1]:
            # Its own last frame: a version that takes other arguments.
            remedy = "install this version of ddp_perf for the ranks, or remove the other one there"
        return why + (f"\nremedy: {remedy}" if remedy else "")

    def _last_lines(self) -> str:
        return self.output_tail(3).replace("\n", " | ")

    def _end(self) -> str:
        code = self._process.returncode
        if code >= 0:
            return f"exit code {code}"
        return signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"

    def _hint(self) -> str:
        is_killed = self._process.returncode == -signal.SIGKILL
        return "; out of memory? see the kernel's log" if is_killed else ""

    def fileno(self) -> int:
        """Return the descriptor that is ready when it has sent something, or has ended."""
        return self._channel.fileno()

    def ask(self, request: Request) -> None:
        """Send a request. That it cannot be sent shows when its answer is read."""
        self._silent, self._beats = 0, self._channel.beats
        with contextlib.suppress(BrokenPipeError):
            self._channel.send(msgspec.json.encode(request))

    def answer(self) -> Answer | None:
        """Return the answer if it has arrived. Raises ServerLostError if there will be none."""
        try:
            data = self._channel.receive(0)
            message = None if data is None else _MESSAGE.decode(data)
            if isinstance(message, Hello):
                raise msgspec.DecodeError("it said hello before")
            return message
        except UNREADABLE as error:
            close_all([self], 0)
            raise ServerLostError(
                f"{self._transport.who} gave an answer that is none of ddp_perf: {error}"
            ) from None
        except BrokenMessageError:
            close_all([self], _EOF_S)
            raise ServerLostError(
                f"{self._transport.who} sent a message that cannot be read; its last lines are"
                " below. What prints there on its standard output?"
            ) from None
        except EOFError:
            close_all([self], _EOF_S)
            raise ServerLostError(
                f"{self._transport.who} ended ({self._end()}), and its ranks with it{self._hint()}"
            ) from None

    def check_silence(self, patience_s: float) -> None:
        """Kill it if it has given no sign of life for ``patience_s``: raises ServerLostError.

        This is called each fifth of that time. Readings are counted, not seconds, so a machine that
        was suspended does not lose its server.
        """
        before, self._beats = self._beats, self._channel.beats
        self._silent = 0 if self._beats != before else self._silent + 1
        if self._silent < _READINGS:
            return
        state = self._state()
        end = "its command was killed" if self.is_elsewhere else "it was killed with its ranks"
        close_all([self], 0)  # it would not notice that its input is closed
        raise ServerLostError(
            f"{self._transport.who} gave no sign of life for {patience_s:.0f} s{state}; {end}, and"
            " the next launch starts another. Check what stops processes there: a debugger, a"
            " scheduler, SIGSTOP"
        )

    def _state(self) -> str:
        if self.is_elsewhere:
            return ""
        return f": its process is {describe_state(state_of(self._process.pid))}"

    def hang_up(self) -> None:
        """Close its input: it ends its ranks, and itself."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()

    def close(self) -> None:
        """End it, gently first. A second call does nothing."""
        close_all([self])

    def terminate(self) -> None:
        """Send the command SIGTERM: a killed srun would leave its step."""
        self._signal(signal.SIGTERM)

    def wait_until(self, end: float) -> None:
        """Wait until the command has ended, or ``end`` by ``time.monotonic()``."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(max(end - time.monotonic(), 0))

    def kill(self) -> None:
        """Kill the command, with what it left behind here."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._signal(signal.SIGKILL)
        self._process.wait()
        self._process.stdin.close()
        self._process.stdout.close()

    @property
    def goodbye_s(self) -> float:
        """The time that it has for its end."""
        return self._transport.goodbye_s

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)

    def output_tail(self, lines: int = 20) -> str:
        """Return the last lines that the command printed: on stderr, or if none, on stdout."""
        text = self._errors.read_text(encoding="utf-8", errors="replace")
        return "\n".join((text.splitlines() or self._channel.printed())[-lines:])


def close_all(servers: Iterable[RankServer], within_s: float = math.inf) -> None:
    """End servers, all at the same time, and within a time that may be shorter than theirs."""
    servers, begin = [one for one in servers if not one.is_closed], time.monotonic()
    for server in servers:
        server.hang_up()
    for server in servers:
        server.wait_until(begin + min(server.goodbye_s, within_s))
    elsewhere = [
        server for server in servers if server.is_elsewhere
    ]  # a killed srun leaves its step
    for server in elsewhere:
        server.terminate()
    end = time.monotonic() + _TERM_S
    for server in elsewhere:
        server.wait_until(end)
    for server in servers:
        server.kill()


Name = TypeVar("Name", bound=Hashable)


def answers_of(
    servers: Mapping[Name, RankServer], requests: Mapping[Name, Request], patience_s: float
) -> dict[Name, Answer | ServerLostError]:
    """Ask each server, and return its answer, or how it was lost.

    If one fails, the others are asked to end GRACE_S later: they may fail, too, and one of them may
    be the cause. An interrupt ends all servers that have not answered.
    """
    waiting = dict(servers)
    found: dict[Name, Answer | ServerLostError] = {}
    tick = patience_s / _READINGS
    next_reading, end_at = time.monotonic() + tick, math.inf
    asked_to_end = False
    try:
        for name, server in servers.items():
            server.ask(requests[name])
        while waiting:
            left = min(next_reading, end_at) - time.monotonic()
            wait([server.fileno() for server in waiting.values()], max(left, 0))
            is_reading = time.monotonic() >= next_reading
            next_reading = time.monotonic() + tick if is_reading else next_reading
            for name, server in list(waiting.items()):
                try:
                    answer = server.answer()
                    if answer is None and is_reading:
                        server.check_silence(patience_s)
                    outcome: Answer | ServerLostError | None = answer
                except ServerLostError as lost:
                    outcome = lost
                if outcome is not None:
                    found[name] = outcome
                    del waiting[name]
            if not asked_to_end and any(map(_failed, found.values())):
                end_at = min(end_at, time.monotonic() + GRACE_S)
            if time.monotonic() >= end_at:
                asked_to_end, end_at = True, math.inf
                for server in waiting.values():
                    server.ask(EndRequest())
    except BaseException:
        close_all(waiting.values())
        raise
    return found


def _failed(outcome: Answer | ServerLostError) -> bool:
    return isinstance(outcome, ServerLostError) or outcome.failure is not None
