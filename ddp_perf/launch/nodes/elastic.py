"""The torchrun of one node, and its ranks, as the node process supervises them."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection, wait
from pathlib import Path

import msgspec

from ddp_perf.core.case import Tier
from ddp_perf.launch.supervisor.rank import SupervisedRank
from ddp_perf.system.host.parent_death import adopt_orphans, die_with_parent
from ddp_perf.worker.heartbeat import Heartbeats, bytes_of_heartbeats
from ddp_perf.worker.report import Greeting, NodeFiles, RankDone, RankFiles

_GREETING = msgspec.json.Decoder(Greeting)
_EXIT_S = 10.0  # torchrun ends its other ranks before it reports how one ended
_POLL_S = 0.2
_TERMINATE_S = 3.0
_GOODBYE_S = 30.0  # torchrun waits for the torchrun of every other node
_LOG_LINES = 20


class Torchrun:
    """A real torchrun on this node. It is killed with this process."""

    def __init__(
        self, arguments: Sequence[str], environ: Mapping[str, str], files: NodeFiles
    ) -> None:
        self._log = files.directory / "torchrun.out"
        self._waited = False
        parent = os.getpid()

        def prepare() -> None:
            die_with_parent(parent)
            adopt_orphans()
            files.torchrun.write_text(str(os.getpid()), encoding="ascii")

        with self._log.open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "torch.distributed.run", *arguments],
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                preexec_fn=prepare,  # this process has one thread
            )
        self.sentinel = os.pidfd_open(self._process.pid)

    def wait(self, patience_s: float) -> int | None:
        """Return its exit code, or None if it runs for longer."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self._process.wait(patience_s)
        return None

    def exit_code_of(self, pid: int) -> int | None:
        """Return the exit code of a rank that ended without a report, or None if it is unknown."""
        code = self.wait(_POLL_S if self._waited else _EXIT_S)  # once for all ranks
        self._waited = True
        if code is None:
            return None
        if code < 0:
            return code  # it was killed, and its ranks with it
        # From the table of failures that every version prints.
        found = re.search(rf"exitcode\s*: (-?\d+) \(pid: {pid}\)", self.log())
        return int(found[1]) if found else code

    def log(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="replace")

    def log_tail(self) -> str:
        """Return the last lines of what torchrun printed."""
        return "\n".join(self.log().splitlines()[-_LOG_LINES:])

    def end(self, *, in_peace: bool) -> None:
        """Wait for its end if its ranks have ended ``in_peace``; then end it."""
        if in_peace and self.wait(_GOODBYE_S) is not None:
            return
        for number in (signal.SIGTERM, signal.SIGKILL):
            self._process.send_signal(number)
            if self.wait(_TERMINATE_S) is not None:
                return


class ElasticRank(SupervisedRank):
    """A rank that torchrun started, and that has greeted."""

    def __init__(
        self,
        greeting: Greeting,
        connections: tuple[Connection, Connection],
        torchrun: Torchrun,
        *,
        directory: Path,
        tier: Tier,
        began: float,
    ) -> None:
        super().__init__(
            RankFiles(directory=directory, rank=greeting.rank),
            tier,
            reports=connections[0],
            recorder=connections[1],
            began=began,
        )
        self._pid = greeting.pid
        self._torchrun = torchrun
        self._sent: signal.Signals | None = None  # by this process
        self._descriptor: int | None = None
        with contextlib.suppress(ProcessLookupError):
            self._descriptor = os.pidfd_open(greeting.pid)

    @property
    def pid(self) -> int:
        return self._pid

    @property
    def sentinel(self) -> int:
        # A rank that ended at once has no descriptor, and torchrun ends after it.
        return self._torchrun.sentinel if self._descriptor is None else self._descriptor

    @property
    def is_symptom(self) -> bool:
        # torchrun ends by SIGTERM what remains after another rank failed.
        ended_by_torchrun = self.report is None and self.exit_code == -signal.SIGTERM
        return ended_by_torchrun or super().is_symptom

    def _reap(self) -> int | None:
        if self.report is not None:
            return 0 if isinstance(self.report, RankDone) else 1
        if self._sent is not None:
            return -self._sent
        return self._torchrun.exit_code_of(self._pid)

    def _signal(self, number: signal.Signals) -> None:
        self._sent = number
        if self._descriptor is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._descriptor, number)


class MeetingPlace:
    """The socket and the shared memory through which ranks and their node process meet."""

    def __init__(self, files: NodeFiles, ranks: int) -> None:
        memory = os.memfd_create("ddp-perf-heartbeats")
        os.ftruncate(memory, bytes_of_heartbeats(ranks))
        self.heartbeats = Heartbeats(ranks, file=memory)
        files.heartbeats.symlink_to(f"/proc/{os.getpid()}/fd/{memory}")
        self.socket = socket.socket(socket.AF_UNIX)
        with files.socket_address() as address:
            self.socket.bind(address)
        self.socket.listen(2 * ranks)

    def accept(self, driver: Connection, patience_s: float) -> tuple[Greeting, Connection] | None:
        """Accept one connection of a rank, which greets at once; None: it does not.

        Raises EOFError if the driver closes the connection.
        """
        rank, _ = self.socket.accept()
        connection = Connection(rank.detach())
        ready = wait([driver, connection], patience_s)
        if driver in ready:
            driver.recv_bytes()  # raises EOFError: the driver sends nothing during a launch
        if connection not in ready:
            connection.close()
            return None
        try:
            return _GREETING.decode(connection.recv_bytes()), connection
        except (EOFError, ConnectionResetError):
            return None
