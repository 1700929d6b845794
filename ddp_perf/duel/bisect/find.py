"""The search for the commit, from the line of commits to the result."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence

import msgspec

from ddp_perf.core.launch import LaunchFailure, LaunchRequest
from ddp_perf.core.work import StepWork
from ddp_perf.duel.bisect.commits import CommitLine
from ddp_perf.duel.bisect.opening import CommitTurns, Opener, innocent_places
from ddp_perf.duel.bisect.result import BisectResult, CommitCulprit, bisect_result, with_work
from ddp_perf.duel.bisect.search import Question, failure_line, place_of, search_state
from ddp_perf.errors import DdpPerfError, LaunchError
from ddp_perf.render.units import counted
from ddp_perf.session.measure.experiment import (
    Arm,
    Block,
    Experiment,
    History,
    Log,
    LoggedLaunch,
    NoLauncher,
    next_block,
)
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


# The policy of the search: the pair of commits that tells most comes next, until one is found.


_FROM_A_SERVER = 6  # launches of a commit


class CommitPairs:
    """The next pair of commits, by all launches so far.

    Of a pair with a commit that cannot be made ready, only that one is launched, which fails. It is
    asked again in a later run only, if the step may be there. Raises LaunchError if good or bad
    failed in this run, which begins after ``earlier`` launches.
    """

    def __init__(self, question: Question, turns: CommitTurns, *, earlier: int) -> None:
        self._question, self._turns, self._earlier = question, turns, earlier

    def next(self, history: History) -> Block | None:
        self._check_ends(history[self._earlier :])
        places = search_state(self._question, history, earlier=self._earlier).ask
        if places is None:
            return None
        arms = [self._arm(place) for place in places]
        broken = [arm for arm in arms if isinstance(arm.launcher, NoLauncher)]
        return Block(next_block(history), tuple(broken[:1] or arms))

    def _arm(self, place: int) -> Arm:
        try:
            turn = self._turns.turn(place)
        except DdpPerfError as error:
            case = self._turns.turn(self._question.length).case
            return Arm(str(place), NoLauncher(error), LaunchRequest(case=case, round=0))
        request = LaunchRequest(case=turn.case, round=0, import_paths=turn.import_paths)
        return Arm(str(place), turn.launcher, request)

    def _check_ends(self, launches: History) -> None:
        ends = {0: "good", self._question.length: "bad"}
        for launch in launches:
            which = ends.get(place_of(launch))
            if launch.failure is not None and which is not None:
                why = failure_line(launch.failure)
                raise LaunchError(f"{which} cannot be launched, so there is no comparison: {why}")


def run_bisect(
    question: Question,
    log: Log,
    turns: CommitTurns,
    *,
    until: float,
    on_launch: Callable[[LoggedLaunch], None],
) -> None:
    """Run pairs until ``time.monotonic()`` is ``until``, or there is nothing left to ask."""
    pairs = CommitPairs(question, turns, earlier=log.earlier)
    experiment = Experiment(log, seed=0, launches_a_server=_FROM_A_SERVER, may_not_start=True)
    experiment.run(pairs, until=until, on_launch=on_launch)


# The search for the commit, from the line of commits to the result.
#
# The machine is leased by whoever searches. Launches are the dearest, so what can be known without
# them comes first: which commits change nothing that the case reads, and where the step's exact
# work grows.


_OF_COUNTS = 0.25  # of the time: how long the place where work grows is looked for


def find_commit(
    line: CommitLine,
    opener: Opener,
    log: Log,
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
        log: Log,
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
        if self._counts is None or any(place_of(one) not in ends for one in self._log.entries):
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
