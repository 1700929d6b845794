"""The search for the commit, from the line of commits to the result.

The machine is leased by whoever searches. Launches are the dearest, so what can be known without
them comes first: which commits change nothing that the case reads, and where the step's exact work
grows.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

import msgspec

from ddp_perf.duel.bisect.commits import CommitLine
from ddp_perf.duel.bisect.counts import CommitCounts
from ddp_perf.duel.bisect.innocent import innocent_places
from ddp_perf.duel.bisect.log import BisectLog
from ddp_perf.duel.bisect.result import BisectResult, CommitCulprit, bisect_result, with_work
from ddp_perf.duel.bisect.run import run_bisect
from ddp_perf.duel.bisect.search import Question
from ddp_perf.duel.bisect.turns import CommitTurns, Opener
from ddp_perf.render.units import counted

_OF_COUNTS = 0.25  # of the time: how long the place where work grows is looked for


def find_commit(
    line: CommitLine,
    opener: Opener,
    log: BisectLog,
    *,
    confidence: float,
    until: float,
    on_progress: Callable[[str], None],
    counts: bool = True,
) -> BisectResult:
    """Search on a leased machine until ``time.monotonic()`` is ``until``, and return the result.

    Raises what `CommitSearch` raises; what was launched is in the log.
    """
    with contextlib.closing(CommitTurns(line, opener)) as turns:
        search = CommitSearch(
            line, turns, log, confidence=confidence, counts=counts, on_progress=on_progress
        )
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
        log: BisectLog,
        *,
        confidence: float,
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
            confidence=confidence,
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
                    f"{counted(len(self._log.launches), 'launch')} done"
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
            self._log.launches,
            case_id=self._case_id,
            log=str(self._log.path),
        )
        culprits = tuple(map(self._with_counts, result.culprits))
        return msgspec.structs.replace(result, culprits=culprits)

    def _count_first(self, until: float) -> None:
        """Find the commits to launch first. A search that goes on has launched them already."""
        ends = {0, self._line.length}
        if self._counts is None or any(one.place not in ends for one in self._log.launches):
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
