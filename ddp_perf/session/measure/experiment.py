"""Experiments: the one loop that launches block after block, as a policy asks, and logs each.

A policy is a function of the log, so that an experiment that was ended anywhere goes on from it.
The launches of a block run one right after the other in random order, so that no arm is always the
first, and what slows the machine down for minutes slows all of them down.
"""

from __future__ import annotations

import contextlib
import datetime
import math
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeAlias

import msgspec
from msgspec.structs import replace

from ddp_perf.core.case import Case
from ddp_perf.core.launch import LaunchFailure, LaunchRequest, LaunchResult
from ddp_perf.core.measurement import LaunchSummary
from ddp_perf.errors import LaunchError
from ddp_perf.launch.launcher import Launcher, Runtime
from ddp_perf.system.host.termination import held_signals
from ddp_perf.system.ledger import Conditions, Entries, Ledger

_OF_START = 0.05  # of the time that is left: servers that take longer to start are not renewed


class Arm(NamedTuple):
    """One launch of a block. Its request gets the number of the block as its round."""

    name: str
    launcher: Launcher
    request: LaunchRequest


class NoLauncher:
    """The launcher of an arm that cannot be made ready: its launches fail by this error."""

    def __init__(self, error: Exception) -> None:
        self._error = LaunchError(str(error))

    def nodes(self, case: Case) -> tuple[str, ...]:
        return ()

    def runtime(self, case: Case | None = None) -> Runtime:
        raise self._error

    def launch(self, request: LaunchRequest) -> LaunchResult | LaunchFailure:
        raise self._error

    def close(self) -> None:
        """End nothing, since no process runs."""


class Block(NamedTuple):
    """Launches that compare with each other."""

    number: int
    arms: tuple[Arm, ...]
    phase: int = 0  # of the experiment, where its blocks have several purposes


class LoggedLaunch(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A finished launch, which is a line of the log."""

    phase: int = 0
    block: int
    turn: int  # of its block: 0 ran first
    arms: int  # of its block
    case_id: str
    arm: str
    started: str  # ISO 8601, UTC
    ready_s: float  # from the end of the launch before it, until it could begin
    wall_s: float  # from the request to the outcome
    summary: LaunchSummary | None = None  # its figures, without those that need other launches
    result: LaunchResult | None = None  # whole, where a policy needs more than the figures
    failure: LaunchFailure | None = None  # None: it did not fail
    session: str = ""  # the date of its session, where there is one

    @property
    def values(self) -> dict[str, float]:
        """Its figures by metric; {}: it failed."""
        return {} if self.summary is None else self.summary.values


History: TypeAlias = Sequence[LoggedLaunch]
Log: TypeAlias = Ledger[LoggedLaunch]
_Served: TypeAlias = tuple[Launcher, str, str]  # a launcher, the id of a case, and an arm


class Policy(Protocol):
    """The plan of an experiment: which block comes next."""

    def next(self, history: History) -> Block | None:
        """Return the next block, by all launches that are finished; None: there is none."""
        ...


def open_log(directory: Path, question: dict[str, str], conditions: Conditions) -> Log:
    """Open the log of a question. Close it. Raises ResultsError, as `Ledger.of_question` does."""
    return Ledger.of_question(directory, LoggedLaunch, question, conditions)


class Experiment:
    """The execution of policies, whose finished launches are in ``log``.

    After ``launches_a_server`` launches of an arm beside others its server ends, and the next one
    is a fork of another: forks of one share its addresses, which may make an arm a little slower
    each time. None: servers stay. ``keeps_results``: whole results are logged, and not only their
    figures. With ``may_not_start``, an arm whose server does not start has failed; else that is a
    LaunchError. ``seed`` is that of the order of arms; None: another one each time.
    """

    def __init__(
        self,
        log: Entries[LoggedLaunch],
        *,
        seed: int | None = None,
        launches_a_server: int | None = None,
        keeps_results: bool = False,
        may_not_start: bool = False,
    ) -> None:
        self.log = log
        self._seed = random.randrange(2**32) if seed is None else seed
        self._launches_a_server = launches_a_server
        self._keeps_results = keeps_results
        self._may_not_start = may_not_start
        self._of_server: Counter[_Served] = Counter()  # launches of its arms
        self._start_s = 0.0  # of a server
        self._free = time.monotonic()  # since then no launch runs

    def run(
        self,
        policy: Policy,
        *,
        until: float = math.inf,
        start_s: float = 0.0,
        on_launch: Callable[[LoggedLaunch], None] = lambda launch: None,
    ) -> None:
        """Launch the policy's blocks until it has none, or the next one has no room.

        ``until`` is the end by ``time.monotonic()``: no block begins that is expected to end after
        it. ``start_s`` is what the start of a server took before. Raises LaunchError if ranks
        cannot be started, and ResultsError if the log cannot be written.
        """
        self._start_s = max(self._start_s, start_s)
        while time.monotonic() < until and (block := policy.next(self.log.entries)) is not None:
            if until < math.inf and time.monotonic() + self._expected_s(block) > until:
                return
            if self._launches_a_server is not None and len(block.arms) > 1:
                self._renew_servers(block, self._launches_a_server, until - time.monotonic())
                self._start_servers(block)
            for turn, arm in enumerate(self._in_random_order(block)):
                started, begin = datetime.datetime.now(datetime.timezone.utc), time.monotonic()
                outcome = self._outcome(arm, block)
                with held_signals():  # what is finished is logged
                    end = time.monotonic()
                    launch = LoggedLaunch(
                        phase=block.phase,
                        block=block.number,
                        turn=turn,
                        arms=len(block.arms),
                        case_id=arm.request.case.id,
                        arm=arm.name,
                        started=started.isoformat(timespec="seconds"),
                        ready_s=begin - self._free,
                        wall_s=end - begin,
                        **self._kept(outcome, arm.request.case),
                    )
                    self.log.append(launch)
                    self._free = end
                on_launch(launch)

    def _expected_s(self, block: Block) -> float:
        """Return the seconds of a block by the newest launches of its arms, or of their case."""
        seconds: dict[tuple[str, str | None], float] = {}
        for launch in self.log.entries:
            if launch.failure is None:
                seconds[launch.case_id, launch.arm] = launch.wall_s
                seconds[launch.case_id, None] = launch.wall_s
        cases = [(arm.request.case.id, arm.name) for arm in block.arms]
        return sum(seconds.get(one, seconds.get((one[0], None), 0.0)) for one in cases)

    def _in_random_order(self, block: Block) -> list[Arm]:
        case_id = block.arms[0].request.case.id
        order = random.Random(f"{self._seed} {block.phase} {block.number} {case_id}")
        return order.sample(block.arms, len(block.arms))

    def _renew_servers(self, block: Block, most: int, left_s: float) -> None:
        """End the servers from which an arm of the block was launched often enough."""
        if len(block.arms) * self._start_s > _OF_START * left_s:
            return
        for arm in block.arms:
            if self._of_server[_key(arm)] >= most:
                arm.launcher.close()
                for key in [key for key in self._of_server if key[0] is arm.launcher]:
                    del self._of_server[key]

    def _start_servers(self, block: Block) -> None:
        """Start what does not run, so that no start is in a launch's time or within a block."""
        for arm in block.arms:
            if not self._of_server[_key(arm)]:
                begin = time.monotonic()
                with contextlib.suppress(LaunchError):  # the launch raises it again
                    arm.launcher.runtime(arm.request.case)
                self._start_s = max(self._start_s, time.monotonic() - begin)
            self._of_server[_key(arm)] += 1

    def _outcome(self, arm: Arm, block: Block) -> LaunchResult | LaunchFailure:
        request = replace(arm.request, round=block.number, paired=len(block.arms) > 1)
        try:
            return arm.launcher.launch(request)
        except LaunchError as error:
            if not self._may_not_start:
                raise
            return request.not_run(str(error))

    def _kept(self, outcome: LaunchResult | LaunchFailure, case: Case) -> dict[str, Any]:
        """Return the fields of a logged launch that have its outcome."""
        if isinstance(outcome, LaunchFailure):
            return {"failure": outcome}
        if self._keeps_results:
            return {"result": outcome}
        # Imported here: figures need numpy, which collection can do without.
        from ddp_perf.stats.summary import summarise

        samples = case.samples_per_step
        return {"summary": summarise(outcome, samples_per_step=samples, single=None)}


def _key(arm: Arm) -> _Served:
    return arm.launcher, arm.request.case.id, arm.name


# What a policy reads of the log.


def time_of(history: History) -> float:
    """Return the seconds that these launches took of the time of an experiment."""
    return sum(launch.ready_s + launch.wall_s for launch in history)


def next_block(history: History) -> int:
    """Return the number of a block that no launch has."""
    return 1 + max((launch.block for launch in history), default=-1)


def blocks_of(history: History) -> Iterator[dict[str, LoggedLaunch]]:
    """Yield the launches of each whole block by their arm, without those that failed."""
    block: list[LoggedLaunch] = []
    for launch in history:
        # A run may have been ended within a block: the launches after that are of another one.
        is_next = bool(block) and (block[-1].block, len(block)) == (launch.block, launch.turn)
        block = [*block, launch] if is_next else [launch][launch.turn :]
        if len(block) == launch.arms:
            yield {one.arm: one for one in block if one.failure is None}


def pairs_of(history: History, first: str, second: str) -> list[tuple[LoggedLaunch, LoggedLaunch]]:
    """Return the launches of both arms in each block that has both."""
    return [
        (block[first], block[second])
        for block in blocks_of(history)
        if first in block and second in block
    ]
