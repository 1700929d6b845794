"""The search for the commit, from the line of commits to the result."""

from __future__ import annotations

import contextlib
import datetime
import random
import time
from collections.abc import Callable, Sequence

import msgspec

from ddp_perf.core.case import Case
from ddp_perf.core.launch import LaunchFailure, LaunchRequest, LaunchResult
from ddp_perf.core.work import StepWork
from ddp_perf.duel.bisect.commits import CommitLine
from ddp_perf.duel.bisect.opening import CommitTurns, Opener, innocent_places
from ddp_perf.duel.bisect.result import BisectResult, CommitCulprit, bisect_result, with_work
from ddp_perf.duel.bisect.search import CommitLaunch, Question, SearchState, search_state
from ddp_perf.duel.open_sides import Turn, launch_turns
from ddp_perf.errors import DdpPerfError, LaunchError
from ddp_perf.launch.launcher import Launcher, Runtime
from ddp_perf.render.units import counted
from ddp_perf.stats.summary import summarise
from ddp_perf.system.ledger import Ledger
from ddp_perf.work.changes import added_work
from ddp_perf.work.session import count_case

# The exact work of commits: each is counted once, and where it grows most is found by halves.


class CommitCounts:
    """The counted steps of commits. ``known`` has those so far, or why they cannot be counted."""

    def __init__(self, turns: CommitTurns, on_count: Callable[[int], None]) -> None:
        self.known: dict[int, StepWork | str] = {}
        self._turns, self._on_count = turns, on_count
        self._longest_s = 0.0

    def of(self, place: int) -> StepWork | str:
        """Return the step of the commit, or why it cannot be counted."""
        if place not in self.known:
            begin = time.monotonic()
            self.known[place] = self._counted(place)
            self._longest_s = max(self._longest_s, time.monotonic() - begin)
            self._on_count(place)
        return self.known[place]

    def most_added(self, places: Sequence[int], *, until: float) -> tuple[int, ...]:
        """Return two of the places, between which the step's work grows most.

        They are next to each other, unless those between them cannot be counted, or not before
        ``time.monotonic()`` is ``until``. Nothing is returned if the last place adds no work to the
        first one. Each half of the line is compared by what it adds.
        """
        low, high = 0, len(places) - 1
        ends = (places[low], places[high])
        if not all(self._in_time(end, until) and self.of(end) for end in ends):
            return ()
        if not self._added(*ends):
            return ()
        while (middle := self._middle(places, low, high, until)) is not None:
            first = self._added(places[low], places[middle])
            second = self._added(places[middle], places[high])
            low, high = (low, middle) if first >= second else (middle, high)
        return places[low], places[high]

    def _middle(self, places: Sequence[int], low: int, high: int, until: float) -> int | None:
        """Return the number of a place between two, the middle one if it can be counted."""
        for number in sorted(range(low + 1, high), key=lambda one: abs(2 * one - low - high)):
            if not self._in_time(places[number], until):
                return None
            if isinstance(self.of(places[number]), StepWork):
                return number
        return None

    def _in_time(self, place: int, until: float) -> bool:
        return place in self.known or time.monotonic() + self._longest_s <= until

    def _added(self, before: int, after: int) -> float:
        old, new = self.of(before), self.of(after)
        if isinstance(old, StepWork) and isinstance(new, StepWork):
            return added_work(old, new)
        return 0.0

    def _counted(self, place: int) -> StepWork | str:
        try:
            turn = self._turns.turn(place)
            if not turn.case.trains:
                return "a collective by itself has no counts"
            step = count_case(turn.case, turn.launcher, turn.import_paths)
        except DdpPerfError as error:
            return str(error)
        return str(step) if isinstance(step, LaunchFailure) else step


# The search for the commit: pairs are launched and logged until it is found, or time is over.


def run_bisect(
    question: Question,
    log: Ledger[CommitLaunch],
    turns: CommitTurns,
    *,
    until: float,
    on_launch: Callable[[SearchState], None],
) -> SearchState:
    """Run pairs until ``time.monotonic()`` is ``until``, or there is nothing left to ask.

    A commit that cannot be launched is noted. It is asked again in a later run only, if the step
    may be there. ``on_launch`` receives what the launches show after each pair. Raises LaunchError
    if good or bad fails, ResultsError if the log cannot be written.
    """
    now = search_state(question, log.entries, earlier=log.earlier)
    last_s = 0.0
    while now.ask is not None and (begin := time.monotonic()) + last_s <= until:
        _launch_pair(now.ask, question, log, turns)
        last_s = time.monotonic() - begin
        now = search_state(question, log.entries, earlier=log.earlier)
        on_launch(now)
    return search_state(question, log.entries, ended=True)


def _launch_pair(
    places: tuple[int, int], question: Question, log: Ledger[CommitLaunch], turns: CommitTurns
) -> None:
    """Run a launch of two commits, in random order; none of them if one cannot be made ready."""
    block = 1 + max((launch.block for launch in log.entries), default=-1)
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

    def __init__(self, log: Ledger[CommitLaunch], *, place: int, is_end: bool) -> None:
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


# The search for the commit, from the line of commits to the result.
#
# The machine is leased by whoever searches. Launches are the dearest, so what can be known without
# them comes first: which commits change nothing that the case reads, and where the step's exact
# work grows.


_OF_COUNTS = 0.25  # of the time: how long the place where work grows is looked for


def find_commit(
    line: CommitLine,
    opener: Opener,
    log: Ledger[CommitLaunch],
    *,
    until: float,
    on_progress: Callable[[str], None],
    counts: bool = True,
) -> BisectResult:
    """Search on a leased machine until ``time.monotonic()`` is ``until``, and return the result.

    Raises what `CommitSearch` raises; what was launched is in the log.
    """
    with contextlib.closing(CommitTurns(line, opener)) as turns:
        search = CommitSearch(line, turns, log, counts=counts, on_progress=on_progress)
        search.run(until=until)
        return search.result()


class CommitSearch:
    """A search for the commit. What was found stays readable if ``run`` is interrupted.

    ``counts`` is whether steps are counted. ``on_progress`` receives what is done, as "12 launches
    done". Raises what the opener of ``turns`` raises for good or bad, and SideError if git cannot
    tell what a commit changes.
    """

    def __init__(
        self,
        line: CommitLine,
        turns: CommitTurns,
        log: Ledger[CommitLaunch],
        *,
        on_progress: Callable[[str], None],
        counts: bool = True,
    ) -> None:
        self._line, self._turns, self._log = line, turns, log
        self._on_progress = on_progress
        self._counts = CommitCounts(turns, self._note_count) if counts else None
        good, bad = turns.turn(0), turns.turn(line.length)
        self._case_id = bad.case.id
        self._question = Question(
            length=line.length,
            innocent=innocent_places(line, good, bad),
        )

    def run(self, *, until: float) -> None:
        """Search until ``time.monotonic()`` is ``until``; then the culprit's work is counted.

        Raises LaunchError if good or bad fails, ResultsError if the log cannot be written.
        """
        # The only commit that changes what the case does is to blame if bad is slower. Of a version
        # that is the question.
        if len(self._question.suspects) > 1 or self._line.what == "version":
            self._count_first(until)
            run_bisect(
                self._question,
                self._log,
                self._turns,
                until=until,
                on_launch=lambda _: self._on_progress(
                    f"{counted(len(self._log.entries), 'launch')} done"
                ),
            )
        if self._counts is not None:
            for culprit in self.result().culprits:
                for place in self._places(culprit):
                    self._counts.of(place)

    def result(self) -> BisectResult:
        """Return what is found so far."""
        result = bisect_result(
            self._question,
            self._line,
            self._log.entries,
            case_id=self._case_id,
            log=str(self._log.path),
        )
        culprits = tuple(map(self._with_counts, result.culprits))
        return msgspec.structs.replace(result, culprits=culprits)

    def _count_first(self, until: float) -> None:
        """Find the commits to launch first. A search that goes on has launched them already."""
        ends = {0, self._line.length}
        if self._counts is None or any(one.place not in ends for one in self._log.entries):
            return
        now = time.monotonic()
        found = self._counts.most_added(
            self._question.places, until=now + _OF_COUNTS * (until - now)
        )
        first = tuple(reversed(found))  # the one that adds work, then the one before it
        self._question = msgspec.structs.replace(self._question, first=first)

    def _note_count(self, place: int) -> None:
        self._on_progress(f"the step of {self._line.commits[place].short} counted")

    def _places(self, culprit: CommitCulprit) -> tuple[int, int]:
        """Return the places of the step before the culprit and of its own."""
        commits = self._line.commits
        before, after = commits.index(culprit.before), commits.index(culprit.commits[-1])
        return self._question.stand_in(before), self._question.stand_in(after)

    def _with_counts(self, culprit: CommitCulprit) -> CommitCulprit:
        """Return the culprit with its work, if both steps are counted by now."""
        known = {} if self._counts is None else self._counts.known
        before, after = self._places(culprit)
        if before in known and after in known:
            return with_work(culprit, known[before], known[after])
        return culprit
