"""The service of a relay: it hands requests to a ForkserverLauncher, and gives signs of life."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NoReturn

import msgspec

from ddp_perf.core.launch import LaunchRequest
from ddp_perf.core.work import CountRequest, RankCounted, StepWork
from ddp_perf.errors import LaunchError
from ddp_perf.launch.forkserver import ForkserverLauncher
from ddp_perf.launch.launcher import ScratchDirectory, contents, with_directories
from ddp_perf.launch.protocol import DescribeRequest, RelayAnswer, framed, own_hello, unframed
from ddp_perf.system.host.termination import sigterm_calls

_REQUEST: msgspec.json.Decoder[LaunchRequest | CountRequest | DescribeRequest] = (
    msgspec.json.Decoder(LaunchRequest | CountRequest | DescribeRequest)
)
_BEAT_S = 1.0
_KINDS = ("records", "profiles", "output")


class _EndedError(Exception):
    """The driver closed the standard input, or SIGTERM came."""


def serve() -> int:
    """Answer requests until the standard input is closed; return 1 if it was from the start."""
    frames = _Frames()
    if sys.stdin.buffer.readline() == b"":
        print(
            "the command closes the standard input of the relay: docker run needs -i",
            file=sys.stderr,
        )
        return 1
    launcher, scratch = ForkserverLauncher(), ScratchDirectory()
    try:
        with sigterm_calls(_end):
            requests = _Requests()
            frames.send(own_hello())
            while True:
                request = requests.get()
                with frames.beats():
                    frames.send(msgspec.json.encode(_answer(launcher, request, scratch.path)))
    except (_EndedError, BrokenPipeError):
        return 0
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # it ends now
        launcher.close()
        scratch.close()


def _end() -> NoReturn:
    raise _EndedError


class _Requests:
    """The requests on the standard input, which a thread reads. Its end interrupts the main thread.

    So a launch does not outlive its driver.
    """

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()

    def get(self) -> LaunchRequest | CountRequest | DescribeRequest:
        return _REQUEST.decode(self._queue.get())

    def _read(self) -> None:
        for line in sys.stdin.buffer:
            data = unframed(line.decode("utf-8", "replace"))
            if data is not None:
                self._queue.put(data)
        main = threading.main_thread().ident
        assert main is not None
        signal.pthread_kill(main, signal.SIGTERM)


class _Frames:
    """The standard output, for messages alone: what anything else prints goes to stderr."""

    def __init__(self) -> None:
        self._stream: BinaryIO = os.fdopen(os.dup(1), "wb")
        self._lock = threading.Lock()
        os.dup2(2, 1)

    def send(self, data: bytes) -> None:
        line = f"{framed(data)}\n".encode()
        with self._lock:
            self._stream.write(line)
            self._stream.flush()

    @contextlib.contextmanager
    def beats(self) -> Iterator[None]:
        """Send an empty message each second within the block."""
        done = threading.Event()
        thread = threading.Thread(target=self._beat_until, args=(done,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()

    def _beat_until(self, done: threading.Event) -> None:
        with contextlib.suppress(BrokenPipeError):  # the reader of requests notices it, too
            while not done.wait(_BEAT_S):
                self.send(b"")


def _answer(
    launcher: ForkserverLauncher,
    request: LaunchRequest | CountRequest | DescribeRequest,
    directory: Path,
) -> RelayAnswer:
    try:
        if isinstance(request, DescribeRequest):
            return RelayAnswer(runtime=launcher.runtime(request.case))
        if isinstance(request, CountRequest):
            counted = launcher.count(request)
            if isinstance(counted, StepWork):
                return RelayAnswer(outcome=RankCounted(work=counted))
            return RelayAnswer(outcome=counted)
        return _launched(launcher, request, directory)
    except LaunchError as error:
        return RelayAnswer(refusal=str(error))


def _launched(launcher: ForkserverLauncher, request: LaunchRequest, directory: Path) -> RelayAnswer:
    """Run the launch with directories of this machine, and bring the files in them."""
    with tempfile.TemporaryDirectory(dir=directory) as place:
        records, profiles, output = (Path(place, name) for name in _KINDS)
        local = with_directories(request, records, profiles)
        if request.output is not None:
            local = msgspec.structs.replace(local, output=str(output))
        outcome = launcher.launch(local)
        return RelayAnswer(
            outcome=outcome,
            output=contents(output),
            records=contents(records),
            profiles=contents(profiles),
        )
