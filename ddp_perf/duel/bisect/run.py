"""The search for the commit: pairs are launched and logged until it is found, or time is over."""

from __future__ import annotations

import datetime
import random
import time
from collections.abc import Callable

from ddp_perf.core.case import Case
from ddp_perf.core.launch import LaunchFailure, LaunchRequest, LaunchResult
from ddp_perf.duel.bisect.log import BisectLog, CommitLaunch
from ddp_perf.duel.bisect.search import Question, Standing, standing
from ddp_perf.duel.bisect.turns import CommitTurns
from ddp_perf.duel.launching import Turn, launch_turns
from ddp_perf.errors import DdpPerfError, LaunchError
from ddp_perf.launch.launcher import Launcher, Runtime
from ddp_perf.stats.summary import summarise


def run_bisect(
    question: Question,
    log: BisectLog,
    turns: CommitTurns,
    *,
    until: float,
    on_launch: Callable[[Standing], None],
) -> Standing:
    """Run pairs until ``time.monotonic()`` is ``until``, or there is nothing left to ask.

    A commit that cannot be launched is noted. It is asked again in a later run only, if the step
    may be there. ``on_launch`` receives what the launches show after each pair. Raises LaunchError
    if good or bad fails, ResultsError if the log cannot be written.
    """
    now = standing(question, log.launches, earlier=log.earlier)
    last_s = 0.0
    while now.ask is not None and (begin := time.monotonic()) + last_s <= until:
        _launch_pair(now.ask, question, log, turns)
        last_s = time.monotonic() - begin
        now = standing(question, log.launches, earlier=log.earlier)
        on_launch(now)
    return standing(question, log.launches, ended=True)


def _launch_pair(
    places: tuple[int, int], question: Question, log: BisectLog, turns: CommitTurns
) -> None:
    """Run a launch of two commits, in random order; none of them if one cannot be made ready."""
    block = 1 + max((launch.block for launch in log.launches), default=-1)
    ready = []
    for place in places:
        logged = _LoggedLauncher(log, place=place, is_end=place in (0, question.length))
        try:
            turn = turns.turn(place)
        except DdpPerfError as error:
            logged.note(block, str(error))
            return
        logged.launcher = turn.launcher
        ready.append(Turn(logged, turn.case, turn.import_paths))
    launch_turns(ready, block=block, order=random.Random(block))


class _LoggedLauncher:
    """A launcher that appends every finished launch to the log at once."""

    def __init__(self, log: BisectLog, *, place: int, is_end: bool) -> None:
        self.launcher: Launcher
        self._log, self._place, self._is_end = log, place, is_end

    def nodes(self, case: Case) -> tuple[str, ...]:
        return self.launcher.nodes(case)

    def runtime(self, case: Case | None = None) -> Runtime:
        return self.launcher.runtime(case)

    def close(self) -> None:
        self.launcher.close()

    def launch(self, request: LaunchRequest) -> LaunchResult | LaunchFailure:
        started, begin = _now(), time.monotonic()
        try:
            outcome = self.launcher.launch(request)
        except LaunchError as error:
            outcome = LaunchFailure(
                case_id=request.case.id,
                round=request.round,
                kind="server",
                rank=None,
                detail=str(error),
            )
        if isinstance(outcome, LaunchFailure):
            self.note(request.round, _reason(outcome))
            return outcome
        summary = summarise(outcome, samples_per_step=request.case.samples_per_step, single=None)
        self._log.append(
            CommitLaunch(
                place=self._place,
                block=request.round,
                started=started,
                wall_s=time.monotonic() - begin,
                values=summary.values,
            )
        )
        return outcome

    def note(self, block: int, reason: str) -> None:
        """Log that the commit cannot be launched. Raises LaunchError if it is good or bad."""
        if self._is_end:
            which = "good" if self._place == 0 else "bad"
            raise LaunchError(f"{which} cannot be launched, so there is no comparison: {reason}")
        self._log.append(
            CommitLaunch(place=self._place, block=block, started=_now(), wall_s=0.0, failure=reason)
        )


def _reason(failure: LaunchFailure) -> str:
    """Return the failure in one line, with the exception of the rank if there is one."""
    lines = failure.traceback.strip().splitlines()
    return (
        f"{failure.detail}: {lines[-1]}"
        if lines and lines[-1] not in failure.detail
        else failure.detail
    )


def _now() -> str:
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
