"""The supervision of a launch by a server: the ranks of its node are forked, watched, and ended."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import wait
from pathlib import Path
from typing import NoReturn

import msgspec
import torch.multiprocessing as multiprocessing

from ddp_perf.core.case import Tier
from ddp_perf.core.launch import LaunchFailure, LaunchRequest
from ddp_perf.core.work import CountRequest
from ddp_perf.errors import LaunchError
from ddp_perf.launch.node_facts import NodeFacts, read_facts
from ddp_perf.launch.protocol import (
    RANK_FILE,
    Answer,
    DescribeRequest,
    EndRequest,
    NodeLaunch,
)
from ddp_perf.launch.rendezvous import Rendezvous
from ddp_perf.launch.supervisor.driver import Driver, EndedError
from ddp_perf.launch.supervisor.output import beginnings
from ddp_perf.launch.supervisor.postmortem import place_of
from ddp_perf.launch.supervisor.rank import RankProcess
from ddp_perf.launch.supervisor.watch import end_ranks, ending_orphans, watch_ranks
from ddp_perf.system.host.termination import die_with_parent
from ddp_perf.worker.process import count_as_rank, run_rank
from ddp_perf.worker.report import Heartbeats, RankChannels, RankFiles

_OTHERS_S = 3.0  # each node looks at its ranks once a second
_FACTS_S, _POLL_S = 60.0, 1.0
_MOST_BROUGHT = 2**29  # bytes of files


def serve(driver: Driver, directory: Path, *, elsewhere: bool) -> None:
    """Answer the driver's requests, with files in ``directory``.

    ``elsewhere``: the driver may have other files, so flight records and traces are brought to it.
    Raises EOFError or ConnectionError when the driver has ended.
    """
    while True:
        match driver.next():
            case NodeLaunch() as launch:
                driver.answer(run_launch(launch, directory, driver, elsewhere=elsewhere))
            case CountRequest() as request:
                driver.answer(run_count(request, directory, driver))
            case DescribeRequest(tier=tier):
                driver.answer(Answer(facts=_read_facts(tier, driver)))
            case EndRequest():
                pass  # the launch had ended by itself


def run_launch(message: NodeLaunch, directory: Path, driver: Driver, *, elsewhere: bool) -> Answer:
    """Run the part of a launch that this node has. Every rank has ended when this returns.

    Raises EOFError if the driver closes the connection meanwhile.
    """
    launch_directory = Path(tempfile.mkdtemp(dir=directory))
    try:
        return _NodeRanks(message, launch_directory, driver, elsewhere=elsewhere).run()
    except EndedError:
        failure = message.request.not_run("it was ended while its ranks ran")
        return Answer(failure=failure, was_ended=True)
    except LaunchError as error:
        return Answer(failure=message.request.not_run(str(error)))
    finally:
        shutil.rmtree(launch_directory, ignore_errors=True)


class _NodeRanks:
    """A launch on this node, with its files in ``directory``.

    Raises LaunchError if the nodes cannot meet.
    """

    def __init__(
        self, message: NodeLaunch, directory: Path, driver: Driver, *, elsewhere: bool
    ) -> None:
        self._records, self._profiles = directory / "records", directory / "profiles"
        self._request = request = message.request
        if elsewhere:
            self._request = _with_directories(request, self._records, self._profiles)
        self._directory = directory
        self._driver = driver
        self._first = message.number * request.case.run_per_node
        self._meeting: Rendezvous | None = None
        if message.endpoint is not None:
            self._meeting = Rendezvous(
                message.endpoint, is_host=message.number == 0, launch=message.id
            )
            self._meeting.check()
        self._ranks: list[RankProcess] = []

    def run(self) -> Answer:
        request, driver = self._request, self._driver
        count = request.case.run_per_node
        heartbeats = Heartbeats(count, first=self._first)
        with _ending(self._ranks, request.case.tier, driver):
            for local_rank in range(count):
                self._ranks.append(self._forked(local_rank, heartbeats))
            failure = watch_ranks(request, self._ranks, heartbeats, driver)
            if failure is not None:
                return self._failed(failure)
            place = self._hung_place()
        printed = [] if request.output is None else [rank.files.output for rank in self._ranks]
        return Answer(
            results=tuple(rank.result for rank in self._ranks),
            place=place,
            output=beginnings(printed),
            profiles=contents(self._profiles),
        )

    def _forked(self, local_rank: int, heartbeats: Heartbeats) -> RankProcess:
        request, rank, parent = self._request, self._first + local_rank, os.getpid()
        case, meeting = request.case, self._meeting
        variables = _variables(rank, case.world_size, local_rank, case.ranks_per_node)

        def run(channels: RankChannels) -> NoReturn:
            self._driver.close()
            os.environ.update(variables if meeting is None else variables | meeting.variables)
            run_rank(request, channels, parent)

        return _rank(run, self._directory, rank, request.case.tier, heartbeats)

    def _failed(self, failure: LaunchFailure) -> Answer:
        """Return the failure, with what the driver needs to find the cause among several nodes."""
        answer = Answer(failure=failure)
        with contextlib.suppress(LaunchError):  # too large: the failure is worth more
            answer = Answer(failure=failure, records=contents(self._records))
        if self._meeting is None:
            return answer
        failed = [rank for rank in self._ranks if rank.failed]
        is_symptom = bool(failed) and all(rank.is_symptom for rank in failed)
        hangs, place, unreachable = failure.kind == "hang", None, None
        self._driver.beat()
        if hangs or is_symptom:
            unreachable = self._meeting.unreachable()
        if hangs:
            place = self._least_place(self._ranks)
        return msgspec.structs.replace(
            answer, is_symptom=is_symptom, place=place, unreachable=unreachable
        )

    def _hung_place(self) -> tuple[int, int] | None:
        """Return the place of the ranks that hang after the timed steps; None: no rank does."""
        hung = [rank for rank in self._ranks if rank.hangs]
        return None if self._meeting is None or not hung else self._least_place(hung)

    def _least_place(self, ranks: Sequence[RankProcess]) -> tuple[int, int]:
        place = min(place_of(self._request.case.tier, rank) for rank in ranks)
        # Ranks of other nodes would lose their peers, and hide which of them hangs: they are left
        # as they are until those nodes have noticed the same hang.
        with contextlib.suppress(EndedError):
            self._driver.check(_OTHERS_S)
        return place


def run_count(request: CountRequest, directory: Path, driver: Driver) -> Answer:
    """Run the rank that counts, which is supervised like one of a launch."""
    heartbeats = Heartbeats(1, first=request.rank)
    rank_directory = Path(tempfile.mkdtemp(dir=directory))
    ranks: list[RankProcess] = []
    launch = _as_launch(request)
    parent = os.getpid()

    def run(channels: RankChannels) -> NoReturn:
        driver.close()
        ranks = request.case.world_size
        os.environ.update(_variables(request.rank, ranks, request.rank, ranks))
        count_as_rank(request, channels, parent)

    try:
        with _ending(ranks, launch.case.tier, driver):
            ranks.append(_rank(run, rank_directory, request.rank, launch.case.tier, heartbeats))
            failure = watch_ranks(launch, ranks, heartbeats, driver)
    except EndedError:
        return Answer(failure=launch.not_run("it was ended"), was_ended=True)
    finally:
        shutil.rmtree(rank_directory, ignore_errors=True)
    if failure is not None:
        return Answer(failure=failure)
    return Answer(counted=ranks[0].counted.work)


def _read_facts(tier: Tier, driver: Driver) -> NodeFacts | None:
    """Return the facts of this node, which a fork reads: NVML stays out of this process.

    None: it could not, and printed why, or took too long. Raises EOFError as `run_launch`.
    """
    context = multiprocessing.get_context("fork")
    reading, writing = context.Pipe(duplex=False)
    parent = os.getpid()

    def read() -> None:
        die_with_parent(parent)
        driver.close()
        writing.send_bytes(msgspec.json.encode(read_facts(tier)))

    process = context.Process(target=read)
    process.start()
    writing.close()
    end = time.monotonic() + _FACTS_S
    try:
        while not wait([reading], 1.0):
            driver.check()
            if time.monotonic() > end:
                return None
        with contextlib.suppress(EOFError):
            return msgspec.json.decode(reading.recv_bytes(), type=NodeFacts)
    except EndedError:
        pass
    finally:
        process.kill()
        process.join(_POLL_S)  # the kernel cannot end one that waits for a lost GPU
        reading.close()
    return None


def _variables(rank: int, ranks: int, local_rank: int, local_ranks: int) -> dict[str, str]:
    """Return the variables of a rank, as torchrun sets them for the user's code."""
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(ranks),
        "LOCAL_RANK": str(local_rank),
        "LOCAL_WORLD_SIZE": str(local_ranks),
    }


def _rank(
    run: Callable[[RankChannels], NoReturn],
    directory: Path,
    rank: int,
    tier: Tier,
    heartbeats: Heartbeats,
) -> RankProcess:
    context = multiprocessing.get_context("fork")
    return RankProcess(context, run, RankFiles(directory=directory, rank=rank), tier, heartbeats)


@contextlib.contextmanager
def _ending(ranks: Sequence[RankProcess], tier: Tier, driver: Driver) -> Iterator[None]:
    """End the ranks that are started in the block, with all that they started."""
    with ending_orphans(driver):
        try:
            yield
        finally:
            end_ranks(ranks, tier, driver)


def _as_launch(request: CountRequest) -> LaunchRequest:
    """Return the launch for the supervision: no GPU is used, and steps take what a start takes."""
    schedule = msgspec.structs.replace(
        request.case.schedule, step_deadline_s=request.case.schedule.start_deadline_s
    )
    case = msgspec.structs.replace(request.case, tier="cpu", schedule=schedule)
    return LaunchRequest(case=case, round=0)


def _with_directories(request: LaunchRequest, records: Path, profiles: Path) -> LaunchRequest:
    """Return the request with directories of this machine in the place of those of the driver."""
    profiling = request.profiling
    if profiling is not None:
        profiling = msgspec.structs.replace(profiling, directory=str(profiles))
    return msgspec.structs.replace(
        request,
        records=None if request.records is None else str(records),
        profiling=profiling,
    )


def contents(directory: Path) -> dict[str, bytes]:
    """Return the ranks' files in a directory, by name; none if it is not there.

    Raises LaunchError if they are too large to be brought.
    """
    if not directory.is_dir():
        return {}
    files = [path for path in sorted(directory.iterdir()) if RANK_FILE.search(path.name)]
    if (size := sum(path.stat().st_size for path in files)) > _MOST_BROUGHT:
        raise LaunchError(
            f"the traces of this node have {size / 2**20:.0f} MiB, which is too much to be brought:"
            " profile fewer steps"
        )
    return {path.name: path.read_bytes() for path in files if path.is_file()}
