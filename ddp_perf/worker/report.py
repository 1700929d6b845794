"""The report of a rank, and its files, as its supervisor reads them. Torch is not imported."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import msgspec

from ddp_perf.core.launch import RankResult
from ddp_perf.core.work import RankCounted

STACK_SIGNAL = signal.SIGUSR1  # the rank writes the stacks of its threads


class RankError(msgspec.Struct, frozen=True, kw_only=True, tag="error"):
    """The error of a rank, as the rank itself reports it."""

    detail: str
    traceback: str
    user_frames: str = ""  # the traceback without the frames of this package and of torch
    at: float  # time.monotonic(), which is one clock for all processes of a machine
    peer_lost: bool  # the error is a symptom: another rank died
    exit_code: int | None  # of a SystemExit
    needs_gpu: bool = False  # the step of a script cannot be counted on a CPU


class RankTimed(msgspec.Struct, frozen=True, kw_only=True, tag="timed"):
    """The times of a rank, before it examines anything. Its report follows, unless it ends."""

    result: RankResult
    whole: bool = False  # it has the facts as well: the rank only waits for the others to end


class RankDone(msgspec.Struct, frozen=True, kw_only=True, tag="done"):
    """The measurements of a rank."""

    result: RankResult
    # It ended its examination in the middle, so other ranks may wait for it in a collective.
    left: bool = False


Report = RankError | RankDone | RankCounted


class RankFiles(msgspec.Struct, frozen=True, kw_only=True):
    """The files of one rank in the launch's directory."""

    directory: Path
    rank: int

    @property
    def output(self) -> Path:
        return self.directory / f"rank{self.rank}.out"

    @property
    def stacks(self) -> Path:
        return self.directory / f"rank{self.rank}.stacks"


class Greeting(msgspec.Struct, frozen=True, kw_only=True):
    """The first message of a rank that the node process did not fork."""

    rank: int
    local_rank: int
    pid: int


class NodeFiles(msgspec.Struct, frozen=True, kw_only=True):
    """The files through which a node process and its ranks meet."""

    directory: Path

    @property
    def request(self) -> Path:
        return self.directory / "request.json"

    @property
    def heartbeats(self) -> Path:
        """A link to memory of the node process: a disk would write every beat."""
        return self.directory / "heartbeats"

    @property
    def torchrun(self) -> Path:
        """Its pid, which torchrun's process writes before it becomes torchrun."""
        return self.directory / "torchrun.pid"

    @contextlib.contextmanager
    def socket_address(self) -> Iterator[str]:
        """Give the address of the node process's socket, however long the directory's name is.

        The address of a socket has at most 107 bytes.
        """
        directory = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            yield f"/proc/self/fd/{directory}/ranks"
        finally:
            os.close(directory)
