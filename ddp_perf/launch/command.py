"""A launcher whose ranks run where a user's command puts them: in a container, say."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import subprocess
import time
from collections import deque
from collections.abc import Mapping, Sequence
from multiprocessing.connection import wait
from pathlib import Path

import msgspec

from ddp_perf.core.case import Case
from ddp_perf.core.launch import LaunchFailure, LaunchRequest, LaunchResult
from ddp_perf.core.work import CountRequest, RankCounted, StepWork
from ddp_perf.errors import LaunchError
from ddp_perf.launch.forkserver import START_S, ServerLostError
from ddp_perf.launch.launcher import (
    Runtime,
    ScratchDirectory,
    package_alone,
    package_directory,
    package_path,
    write_collected,
)
from ddp_perf.launch.protocol import (
    MOST_PATIENCE_S,
    DescribeRequest,
    RelayAnswer,
    beats_until,
    framed,
    is_framed,
    patience_with,
    read_hello,
    unframed,
)
from ddp_perf.launch.supervisor.output import forget_output, keep_output

# The driver's side of one relay: a user's command with a relay in it.


_ANSWER = msgspec.json.Decoder(RelayAnswer)
_GOODBYE_S = 15.0  # the relay ends its server in 3 s; the rest is for the container
_CHUNK = 2**16
_NOISE = 20  # lines


class RelayProcess:
    """The user's command: it is started here, receives requests one by one, and is watched.

    Raises LaunchError if it does not start.
    """

    def __init__(
        self,
        words: Sequence[str],
        environ: Mapping[str, str],
        directory: Path,
        *,
        working_directory: Path | None = None,
    ) -> None:
        self._words = words
        self._errors = directory / "command.err"
        self._beats = 0
        self._answers: deque[bytes] = deque()
        self._rest = bytearray()  # of the standard output: a line without its end
        self._noise: deque[str] = deque(maxlen=_NOISE)  # what others print there
        self._process = self._run(environ, directory, working_directory)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._requests, self._frames = self._process.stdin, self._process.stdout
        try:
            self._greet()
        except BaseException:  # also Ctrl-C
            self.close()
            raise

    def _run(
        self, environ: Mapping[str, str], directory: Path, working_directory: Path | None
    ) -> subprocess.Popen[bytes]:
        with self._errors.open("wb") as errors:
            try:
                return subprocess.Popen(
                    self._words,
                    bufsize=0,
                    env=dict(environ),
                    cwd=working_directory,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    start_new_session=True,  # the driver handles Ctrl-C
                )
            except OSError as error:
                raise LaunchError(
                    f"the command of the side cannot be started: {self._words[0]}: {error.strerror}"
                ) from None

    def _greet(self) -> None:
        """Read the relay's hello. The first line that the relay gets shows that stdin is open."""
        try:
            self._send(b"")
            if self._poll(START_S):
                read_hello(self._answers.popleft(), "where the command runs it")
                return
            why = f"no answer in {START_S:.0f} s; it was ended"
        except EOFError:
            self.close()  # it may still write the reason
            why = self._end()
        text = self.output_tail(3).replace("\n", " | ")
        raise LaunchError(
            f"the command of the side ({self._words[0]} …) started no relay: {why}: {text}"
            + _remedy(text)
        )

    def ask(self, request: LaunchRequest | CountRequest | DescribeRequest) -> RelayAnswer:
        """Return the relay's answer.

        Raises ServerLostError if the command ended, or was killed because it gave no sign of life
        for the deadline of a step (limited to 5 to 60 s). An interrupt ends it.
        """
        patience_s = MOST_PATIENCE_S if request.case is None else patience_with(request.case)
        try:
            self._send(msgspec.json.encode(request))
            if not beats_until(self._poll, lambda: self._beats, patience_s):
                self._kill()
                raise ServerLostError(
                    f"the command of the side gave no sign of life for {patience_s:.0f} s, and was"
                    " killed with its ranks; the next launch starts it again. Check what stops"
                    " processes there"
                )
            return _ANSWER.decode(self._answers.popleft())
        except msgspec.DecodeError as error:
            self.close()
            raise ServerLostError(
                f"the command of the side gave an answer that is none of ddp_perf: {error}"
            ) from None
        except EOFError:
            self.close()
            raise ServerLostError(
                f"the command of the side ended ({self._end()}), and its ranks with it"
            ) from None
        except BaseException:
            self.close()
            raise

    def _send(self, data: bytes) -> None:
        line = memoryview(f"{framed(data)}\n".encode())
        with contextlib.suppress(BrokenPipeError):  # its output, read first, may have the reason
            while line:
                line = line[self._requests.write(line) :]  # a pipe may take a part

    def _poll(self, timeout_s: float) -> bool:
        """Return whether an answer has arrived in time. Raises EOFError if there is no more."""
        end = time.monotonic() + timeout_s
        while not self._answers:
            if not wait([self._frames.fileno()], max(end - time.monotonic(), 0)):
                return False
            chunk = os.read(self._frames.fileno(), _CHUNK)
            if not chunk:
                raise EOFError
            self._take(chunk)
        return True

    def _take(self, chunk: bytes) -> None:
        self._rest += chunk
        if b"\n" not in chunk:  # an answer with traces has many chunks: each is a sign of life
            self._beats += is_framed(self._rest[:_CHUNK].decode("utf-8", "replace"))
            return
        *lines, self._rest = self._rest.split(b"\n")
        for line in lines:
            text = line.decode("utf-8", "replace")
            data = unframed(text)
            if data is None:
                self._noise.append(text)
                continue
            self._beats += 1
            if data:
                self._answers.append(data)

    def _end(self) -> str:
        code = self._process.returncode
        return f"signal {-code}" if code < 0 else f"exit code {code}"

    def close(self) -> None:
        """Close the standard input, which ends the relay and its ranks; kill what does not end."""
        if self._frames.closed:
            return
        with contextlib.suppress(BrokenPipeError):
            self._requests.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_GOODBYE_S)
        self._kill()
        self._frames.close()

    def _kill(self) -> None:
        """Kill the command, with what it left behind."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def output_tail(self, lines: int = 20) -> str:
        """Return the last lines that the command printed: on stderr, or if none, on stdout."""
        text = self._errors.read_text(encoding="utf-8", errors="replace")
        printed = text.splitlines() or [
            *self._noise,
            *self._rest.decode("utf-8", "replace").splitlines(),
        ]
        return "\n".join(printed[-lines:])


def _remedy(text: str) -> str:
    """Return the remedy for an interpreter without this package, or with an older one."""
    if not re.search(r"No module named '?ddp_perf|ddp_perf\.launch\.relay", text):
        return ""
    return (
        f"\nremedy: mount {package_directory()}/ddp_perf there and set PYTHONPATH to the directory"
        " that contains it, or install this version there"
    )


# A launcher whose ranks run where a user's command puts them: in a container, say.


PLACEHOLDER = "{command}"
# Plain words, which each shell on the way leaves as they are. The python3 is that of the command.
_RELAY = ("python3", "-m", "ddp_perf.launch.relay")


class CommandLauncher:
    """A launcher that starts the user's command once, with a relay in it.

    ``command`` is split into words as a shell does it, and run without a shell. The relay's own
    command replaces the placeholder ``{command}``: as several words, or within a longer word as
    text. ``environ`` is the environment of the command, and ``package`` the directory from which
    the relay imports ddp_perf if the command keeps PYTHONPATH and the file system. The command
    runs in ``working_directory``; None: in that of this process.
    """

    def __init__(
        self,
        command: str,
        *,
        environ: Mapping[str, str] | None = None,
        package: Path | None = None,
        working_directory: Path | None = None,
    ) -> None:
        self._words = command_words(command)
        self._environ = dict(os.environ if environ is None else environ)
        self._package = package_directory() if package is None else package
        self._working_directory = working_directory
        self._relay: RelayProcess | None = None  # started by the first request
        self._scratch: ScratchDirectory | None = None

    def nodes(self, case: Case) -> tuple[str, ...]:
        return ()

    def runtime(self, case: Case | None = None) -> Runtime:
        try:
            answer = self._ask(DescribeRequest(case=case))
        except ServerLostError as lost:
            self._drop()
            raise LaunchError(str(lost)) from None
        assert answer.runtime is not None
        return answer.runtime

    def launch(self, request: LaunchRequest) -> LaunchResult | LaunchFailure:
        if request.output is not None:
            forget_output(Path(request.output))
        try:
            answer = self._ask(request)
        except ServerLostError as lost:
            return self._lost(lost, request.case, request.round)
        write_collected(request, records=answer.records, profiles=answer.profiles)
        outcome = answer.outcome
        assert isinstance(outcome, LaunchResult | LaunchFailure)
        if isinstance(outcome, LaunchResult) and request.output is not None:
            output = keep_output(Path(request.output), answer.output)
            return msgspec.structs.replace(outcome, output=output)
        return outcome

    def count(self, request: CountRequest) -> StepWork | LaunchFailure:
        """Count a step of one rank, on a CPU. Raises LaunchError if ranks cannot be started."""
        try:
            outcome = self._ask(request).outcome
        except ServerLostError as lost:
            return self._lost(lost, request.case, round_number=0)
        assert isinstance(outcome, RankCounted | LaunchFailure)
        return outcome.work if isinstance(outcome, RankCounted) else outcome

    def close(self) -> None:
        self._drop()
        if self._scratch is not None:
            self._scratch.close()
            self._scratch = None

    def _ask(self, request: LaunchRequest | CountRequest | DescribeRequest) -> RelayAnswer:
        if self._relay is None:
            self._relay = self._started()
        answer = self._relay.ask(request)
        if answer.refusal is not None:
            raise LaunchError(answer.refusal)
        return answer

    def _started(self) -> RelayProcess:
        self._scratch = self._scratch or ScratchDirectory()
        package = package_alone(self._package, self._scratch.path)
        environ = {**self._environ, "PYTHONPATH": package_path(self._environ, package)}
        return RelayProcess(
            self._words, environ, self._scratch.path, working_directory=self._working_directory
        )

    def _drop(self) -> str:
        """End the relay, and return the last lines of its output."""
        relay = self._relay
        if relay is None:
            return ""
        relay.close()  # an interrupt leaves it for the next call
        self._relay = None
        return relay.output_tail()

    def _lost(self, lost: ServerLostError, case: Case, round_number: int) -> LaunchFailure:
        """Return the failure of a relay that has ended: the next request starts another."""
        return LaunchFailure(
            case_id=case.id,
            round=round_number,
            kind="server",
            rank=None,
            detail=str(lost),
            output=self._drop(),
        )


def command_words(command: str) -> list[str]:
    """Return the words of the user's command, with the relay's command in the placeholder's place.

    Raises LaunchError if the text cannot be split, or has no placeholder.
    """
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise LaunchError(f"command: {command}: {error}") from None
    if not any(PLACEHOLDER in word for word in words):
        raise LaunchError(
            f"command: {command}: there is no {PLACEHOLDER} in it, which is replaced by the"
            " command that starts the ranks: docker run -i IMAGE {command}"
        )
    text = shlex.join(_RELAY)
    replaced = [
        _RELAY if word == PLACEHOLDER else (word.replace(PLACEHOLDER, text),) for word in words
    ]
    return [word for each in replaced for word in each]
