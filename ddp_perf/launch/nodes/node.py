"""The process of one node: ``python -m ddp_perf.launch.nodes.node REQUEST [--end-with-stdin]``."""

from __future__ import annotations

import contextlib
import math
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import NoReturn

import msgspec

from ddp_perf.core.case import Tier
from ddp_perf.core.launch import FailureKind, LaunchFailure, LaunchRequest, RankResult
from ddp_perf.errors import LaunchError
from ddp_perf.launch.launcher import (
    Runtime,
    ScratchDirectory,
    contents,
    server_environment,
    with_directories,
)
from ddp_perf.launch.nodes.engine import (
    END_WITH_STDIN,
    ENDPOINT_VARIABLE,
    NodeOutcome,
    NodeRequest,
    Rendezvous,
    decode_request,
    encode_outcome,
    read_facts,
)
from ddp_perf.launch.supervisor.output import beginnings
from ddp_perf.launch.supervisor.postmortem import describe_failure, place_of
from ddp_perf.launch.supervisor.rank import SupervisedRank
from ddp_perf.launch.supervisor.watch import end_ranks, ending_orphans, watch_ranks
from ddp_perf.system.capacity import find_capacity
from ddp_perf.system.host.host import this_host
from ddp_perf.system.host.termination import adopt_orphans, die_with_parent, sigterm_calls
from ddp_perf.worker.report import (
    Greeting,
    Heartbeats,
    NodeFiles,
    RankDone,
    RankFiles,
    bytes_of_heartbeats,
)

# The torchrun of one node, and its ranks, as the node process supervises them.


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


# One launch on one node: torchrun is started, its ranks are watched, and all are ended.


_OTHERS_S = 3.0  # each node looks at its ranks once a second


class NodeLaunch:
    """The ranks of one launch on this node.

    ``launch`` is the request with directories of this node. Use it from the main thread. Raises
    LaunchError if the nodes cannot meet.
    """

    def __init__(self, request: NodeRequest, launch: LaunchRequest, directory: Path) -> None:
        self.ranks: list[ElasticRank] = []
        self.is_symptom = False
        self.place: tuple[int, int] | None = None
        self.unreachable: str | None = None
        self._request = request
        self._launch = launch
        self._directory = directory
        self._began = time.monotonic()
        self._rendezvous: Rendezvous | None = None
        if launch.case.nodes > 1:
            number = int(os.environ[request.node_variable])
            self._rendezvous = Rendezvous(os.environ[ENDPOINT_VARIABLE], number)
            self._rendezvous.check()
        files = NodeFiles(directory=directory)
        files.request.write_bytes(msgspec.json.encode(launch))
        self._meeting = MeetingPlace(files, launch.case.ranks_per_node)
        self._torchrun = Torchrun(self._arguments(), self._environment(), files)

    def run(self, driver: Connection) -> LaunchFailure | None:
        """Return the failure of the launch on this node, or None if every rank has a result.

        Every rank has ended then. Raises EOFError if the driver closes the connection.
        """
        failure = None
        succeeded = False
        try:
            failure = self._run(driver)
            succeeded = failure is None
        finally:
            end_ranks(self.ranks, self._launch.case.tier, _nothing)
            self._torchrun.end(in_peace=succeeded)
        return failure

    @property
    def results(self) -> tuple[RankResult, ...]:
        return tuple(rank.result for rank in self.ranks)

    def _run(self, driver: Connection) -> LaunchFailure | None:
        failure = self._meet_ranks(driver)
        if failure is not None:
            return failure
        failure = watch_ranks(self._launch, self.ranks, self._meeting.heartbeats, driver, _nothing)
        if failure is None:
            return None
        code = self._torchrun.wait(0)
        if code is not None and code < 0:
            return self._failure(f"torchrun was killed by signal {-code}, and its ranks with it")
        failed = [rank for rank in self.ranks if rank.failed]
        self.is_symptom = bool(failed) and all(rank.is_symptom for rank in failed)
        if failure.kind == "hang" or self.is_symptom:
            self.unreachable = self._unreachable()
        if failure.kind == "hang":
            self.place = min(place_of(self._launch.case.tier, rank) for rank in self.ranks)
            self._let_others_notice(driver)
        return failure

    def _let_others_notice(self, driver: Connection) -> None:
        """Leave the ranks as they are until the other nodes have noticed the same hang.

        Ranks there would lose their peers, and hide which rank of their node hangs.
        """
        if self._launch.case.nodes > 1 and wait([driver], _OTHERS_S):
            driver.recv_bytes()

    def _meet_ranks(self, driver: Connection) -> LaunchFailure | None:
        """Wait until every rank of this node has greeted, and return why one has not."""
        first: dict[int, Connection] = {}
        end = self._began + self._launch.case.schedule.start_deadline_s
        while len(self.ranks) < self._launch.case.ranks_per_node:
            left = max(end - time.monotonic(), 0)
            ready = wait([driver, self._meeting.socket, self._torchrun.sentinel], left)
            if driver in ready:
                driver.recv_bytes()  # raises EOFError: the driver sends nothing during a launch
            if self._meeting.socket in ready:
                if (met := self._meeting.accept(driver, left)) is not None:
                    self._note(*met, first)
            elif self._torchrun.sentinel in ready:
                return self._failed_start()
            elif not ready:
                return self._late_start()
        self.ranks.sort(key=lambda rank: rank.rank)
        return None

    def _note(
        self, greeting: Greeting, connection: Connection, first: dict[int, Connection]
    ) -> None:
        """Note the first connection of a rank, or make the rank from both of them."""
        if greeting.rank not in first:
            first[greeting.rank] = connection
            return
        rank = ElasticRank(
            greeting,
            (first[greeting.rank], connection),
            self._torchrun,
            directory=self._directory,
            tier=self._launch.case.tier,
            began=self._began,
        )
        self.ranks.append(rank)

    def _failed_start(self) -> LaunchFailure:
        """Return the failure of a rank that greeted, or else that of torchrun."""
        for rank in self.ranks:
            rank.receive()
        if any(rank.failed for rank in self.ranks):
            return describe_failure(self._launch, self.ranks)
        # Perhaps it met no other node, or lost one.
        self.is_symptom = self._launch.case.nodes > 1
        code = self._torchrun.wait(0)
        lines = self._torchrun.log_tail().splitlines()
        why = next((line.strip() for line in reversed(lines) if line.strip(" =-")), "no output")
        return self._failure(f"torchrun ended with exit code {code} before its ranks ran: {why}")

    def _late_start(self) -> LaunchFailure:
        case = self._launch.case
        self.is_symptom = case.nodes > 1  # another node has not come, for a reason of its own
        self.unreachable = self._unreachable()
        detail = f"no rank started in {case.schedule.start_deadline_s:g} s"
        if self._rendezvous is not None:
            detail += f"; torchrun waits at {self._rendezvous.endpoint} for {case.nodes} nodes"
        return self._failure(detail, kind="hang")

    def _failure(self, detail: str, kind: FailureKind = "server") -> LaunchFailure:
        return LaunchFailure(
            case_id=self._launch.case.id,
            round=self._launch.round,
            kind=kind,
            rank=None,
            detail=detail,
            output=self._torchrun.log_tail(),
        )

    def _unreachable(self) -> str | None:
        return None if self._rendezvous is None else self._rendezvous.unreachable()

    def _arguments(self) -> list[str]:
        case = self._launch.case
        worker = ["-m", "ddp_perf.worker.elastic_rank", str(self._directory)]
        ranks = ["--nproc-per-node", str(case.ranks_per_node), "--max-restarts", "0"]
        ranks += ["--log-dir", str(self._directory / "logs")]  # torchrun would leave its own
        if self._rendezvous is None:
            return [
                "--nnodes=1",
                # Not --standalone: it keeps pickled state at a port that the network reaches.
                *("--rdzv-backend", "c10d", "--rdzv-conf", "store_type=file"),
                *("--rdzv-endpoint", str(self._directory / "rendezvous")),
                *("--rdzv-id", self._request.id),
                # Its own guess is the name of this host, which nobody may be able to resolve.
                *("--local-addr", "localhost"),
                *ranks,
                *worker,
            ]
        address, is_host = self._rendezvous.own_address, int(self._rendezvous.is_host)
        start_s = math.ceil(case.schedule.start_deadline_s)
        return [
            *("--nnodes", str(case.nodes), *ranks),
            *("--rdzv-backend", "c10d", "--rdzv-endpoint", self._rendezvous.endpoint),
            *("--rdzv-id", self._request.id),
            # Its own guess takes hosts of one name for one host.
            *("--rdzv-conf", f"is_host={is_host},read_timeout={start_s}"),
            *(("--local-addr", address) if address is not None else ()),
            *worker,
        ]

    def _environment(self) -> dict[str, str]:
        case = self._launch.case
        environ = server_environment({**os.environ, **self._request.environ, **case.env})
        # torchrun reads each option that it is not given there, as PyTorchJob of Kubeflow sets it.
        environ = {name: v for name, v in environ.items() if not name.startswith("PET_")}
        # Without it torchrun sets it, but only for several ranks.
        return {"OMP_NUM_THREADS": str(case.threads_per_rank), **environ}


def _nothing() -> None:
    """Give no sign of life: the driver waits for the end of this process."""


# The process of one node: ``python -m ddp_perf.launch.nodes.node REQUEST [--end-with-stdin]``.
#
# It does not import torch. It starts torchrun, supervises the ranks of its node, and prints the
# outcome of the node as its last line. REQUEST is a ``NodeRequest``. With ``--end-with-stdin`` it
# ends as soon as its standard input is closed, which happens if its driver ends.


class _EndedError(Exception):
    """SIGTERM: the engine ends this node, since its driver or another node ended."""


def main(arguments: list[str]) -> int:
    """Run what the request asks, print the outcome, and return 1 if it is a failure."""
    adopt_orphans()
    request = decode_request(arguments[0])
    if request.launch is None:
        outcome = _description(request)
    else:
        outcome = _launched(request, request.launch, _driver(END_WITH_STDIN in arguments))
    print(encode_outcome(outcome), flush=True)
    return int(outcome.failure is not None)


def _driver(watched: bool) -> Connection:
    """Return what is closed when the driver ends: stdin, or else nothing."""
    if watched:
        return Connection(os.dup(0), writable=False)
    ours, theirs = Pipe(duplex=False)
    _OPEN.append(theirs)
    return ours


_OPEN: list[Connection] = []  # for the life of this process


def _launched(request: NodeRequest, launch: LaunchRequest, driver: Connection) -> NodeOutcome:
    scratch = ScratchDirectory()
    try:
        with sigterm_calls(_end):
            return _outcome(request, launch, scratch.path, driver)
    except (EOFError, _EndedError):
        failure = _failure(launch, "it was ended while its ranks ran")
        return NodeOutcome(facts=read_facts(request.tier), failure=failure, was_ended=True)
    except LaunchError as error:
        failure = _failure(launch, str(error))
        return NodeOutcome(facts=read_facts(request.tier), failure=failure)
    finally:
        scratch.close()


def _failure(launch: LaunchRequest, detail: str) -> LaunchFailure:
    return LaunchFailure(
        case_id=launch.case.id, round=launch.round, kind="server", rank=None, detail=detail
    )


def _end() -> NoReturn:
    raise _EndedError


def _outcome(
    request: NodeRequest, launch: LaunchRequest, directory: Path, driver: Connection
) -> NodeOutcome:
    """Run the launch with files in ``directory``, and return what the driver needs of them."""
    records, profiles = directory / "records", directory / "profiles"
    with ending_orphans(lambda: None):
        node = NodeLaunch(request, with_directories(launch, records, profiles), directory)
        failure = node.run(driver)
    printed = [] if launch.output is None else [rank.files.output for rank in node.ranks]
    return NodeOutcome(
        facts=read_facts(request.tier),
        results=() if failure is not None else node.results,
        failure=failure,
        is_symptom=node.is_symptom,
        place=node.place,
        unreachable=node.unreachable,
        output=beginnings(printed),
        records=contents(records),
        profiles=contents(profiles),
    )


def _description(request: NodeRequest) -> NodeOutcome:
    runtime = _runtime(server_environment({**os.environ, **request.environ}))
    capacity = msgspec.structs.replace(find_capacity(), node=this_host())
    return NodeOutcome(facts=read_facts(request.tier), runtime=runtime, capacity=capacity)


def _runtime(environ: Mapping[str, str]) -> Runtime | None:
    """Return the versions that ranks here run on; what went wrong is printed."""
    command = [sys.executable, "-m", "ddp_perf.launch.runtime"]
    done = subprocess.run(command, env=environ, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        return None
    return msgspec.json.decode(done.stdout.splitlines()[-1], type=Runtime)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
