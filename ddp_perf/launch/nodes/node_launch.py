"""One launch on one node: torchrun is started, its ranks are watched, and all are ended."""

from __future__ import annotations

import math
import os
import time
from multiprocessing.connection import Connection, wait
from pathlib import Path

import msgspec

from ddp_perf.core.launch import FailureKind, LaunchFailure, LaunchRequest, RankResult
from ddp_perf.launch.environment import server_environment
from ddp_perf.launch.nodes.elastic import ElasticRank, MeetingPlace, Torchrun
from ddp_perf.launch.nodes.engine import ENDPOINT_VARIABLE
from ddp_perf.launch.nodes.outcome import NodeRequest
from ddp_perf.launch.nodes.rendezvous import Rendezvous
from ddp_perf.launch.supervisor.postmortem import describe_failure, place_of
from ddp_perf.launch.supervisor.watch import end_ranks, watch_ranks
from ddp_perf.worker.report import Greeting, NodeFiles

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
