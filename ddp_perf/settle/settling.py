"""The second stage of a session, suite by suite, within the time that the session has for it."""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from ddp_perf.baselines.store import BaselineStore
from ddp_perf.config.loading import Overrides, suite_file
from ddp_perf.core.baseline import Baseline
from ddp_perf.core.case import Case, Tier
from ddp_perf.core.environment import Environment
from ddp_perf.core.injection import Injection
from ddp_perf.core.verdict import Culprit
from ddp_perf.duel.bisect.commits import commit_line
from ddp_perf.duel.bisect.culprit import culprit_of
from ddp_perf.duel.bisect.find import find_commit
from ddp_perf.duel.bisect.opening import open_commit
from ddp_perf.duel.bisect.search import open_commit_log
from ddp_perf.duel.cases import match_cases
from ddp_perf.duel.open_sides import OpenSide, side_launcher
from ddp_perf.duel.run import DuelRequest, run_duel
from ddp_perf.duel.sides.preparing import parse_side, prepare
from ddp_perf.duel.touched import Project
from ddp_perf.duel.values import Duel, PreparedSide, Side
from ddp_perf.errors import BudgetError, ConfigError, DdpPerfError, SideError
from ddp_perf.render.units import counted, describe_duration
from ddp_perf.session.result import SuiteResult
from ddp_perf.settle.references import Reference, Suspect, edits_beyond, fitting
from ddp_perf.settle.settled_suite import SettledSuite, worst_red
from ddp_perf.stats.rule.error_rate import rate_of_pairs
from ddp_perf.system.capacity import Capacity
from ddp_perf.system.git import CodeState
from ddp_perf.system.variables import training_variables


class SettleRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The means of a session to settle: its time, its error rate, its machine and today's code."""

    project: Project
    store: BaselineStore
    capacity: Capacity
    budget_s: float  # of the whole session; 0: nothing is launched
    false_alarm_rate: float  # of the whole session, over both stages
    cases: int  # of the whole session
    state: CodeState | None  # of today's code; None: it is unknown
    overrides: Overrides
    injections: tuple[Injection, ...] = ()  # they slow the ranks of today's code on purpose
    blind: bool = False  # code that did not change is launched, too: an audit hides what it did


# The search for the commit of a red case, between the reference and today.


def is_searchable(case: Case, good: str, today: CodeState, project: Project) -> bool:
    """Return whether commits lie between, and no uncommitted edit may touch the case."""
    return not (today.commit.startswith(good) or edits_beyond(case, today, project))


def find_culprit(
    request: SettleRequest,
    case: Case,
    good: str,
    environment: Environment,
    *,
    until: float,
    say: Callable[[str], None],
) -> Culprit | None:
    """Return the commit after ``good`` that made the case slower, or None if it is not found.

    It searches until ``time.monotonic()`` is ``until``. The commits must be searchable. Raises
    DdpPerfError.
    """
    root = request.project.root
    assert request.state is not None  # the commits are searchable
    line = commit_line(root, good, request.state.commit)
    say(f"searching the commit after {good[:8]} that made {case.id} slower")
    opener = functools.partial(
        open_commit, root=root, case_id=case.id, capacity=request.capacity, on_progress=say
    )
    with contextlib.closing(open_commit_log(line, case.id, environment)) as log:
        result = find_commit(line, opener, log, until=until, on_progress=lambda text: None)
    return culprit_of(result)


# The two sides of the second stage: the code of a stored session, and today's.


# Opens the code of a reference and today's; its last argument receives lines for people.
Sides = Callable[
    [Reference, Project, Callable[[str], None]],
    contextlib.AbstractContextManager[tuple[OpenSide, OpenSide]],
]


@contextlib.contextmanager
def both_sides_open(
    reference: Reference, project: Project, say: Callable[[str], None]
) -> Iterator[tuple[OpenSide, OpenSide]]:
    """Yield the code of the reference and today's, on a machine that is leased already.

    Raises SideError.
    """
    with contextlib.ExitStack() as stack:
        prepared = [
            stack.enter_context(
                prepare(side, project.root, on_progress=say, import_paths=project.import_paths)
            )
            for side in (_before(reference, project), parse_side(".", "B", project.root))
        ]
        a, b = _with_variables(prepared[0], reference), prepared[1]
        sides = [OpenSide(side, side_launcher(side)) for side in (a, b)]
        for side in sides:
            stack.enter_context(contextlib.closing(side.launcher))
        yield sides[0], sides[1]


def _before(reference: Reference, project: Project) -> Side:
    """Return the reference as a side: its code or, if that is today's, its packages."""
    if reference.packages is not None:
        return parse_side(reference.packages, "A", project.root)
    return Side(
        name="A",
        spec=reference.date,
        kind="revision",
        label=reference.label,
        commit=reference.state.commit,
        patch=str(reference.patch) if reference.state.patch else None,
    )


def _with_variables(side: PreparedSide, reference: Reference) -> PreparedSide:
    """Return the side with the variables of the reference, in the place of today's."""
    tier: Tier = "gpu" if reference.environment.cuda is not None else "cpu"
    today = training_variables(tier, side.environ)
    before: Mapping[str, str] = reference.environment.variables
    if today == before:
        return side
    kept = {name: value for name, value in side.environ.items() if name not in today}
    return msgspec.structs.replace(side, environ={**kept, **before})


# The second stage of a session, suite by suite, within the time that the session has for it.


_OF_A_SUITE = 0.5  # of the time that is left, while further suites follow
_OF_SEARCH = 1 / 3  # of a suite's time: once a case is red, the search for its commit has it


class Settling:
    """The second stage of one session. It launches on the machine that the session has leased."""

    def __init__(
        self,
        request: SettleRequest,
        *,
        say: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
        sides: Sides = both_sides_open,
        find: Callable[..., Culprit | None] = find_culprit,
    ) -> None:
        self._request = request
        self._say = say
        self._clock = clock
        self._sides = sides
        self._find = find
        self._left_s = request.budget_s
        self._left_cases = request.cases
        self._seen: set[tuple[str, str]] = set()  # a later measurement of the suite has them, too

    def __call__(
        self, result: SuiteResult, baseline: Baseline, on_partial: Callable[[SuiteResult], None]
    ) -> SuiteResult:
        """Return the result with what could be decided. ``on_partial`` gets it as it grows.

        No error ends the session: what cannot be settled states why.
        """
        new = [one for one in result.measurements.values() if one.case.key not in self._seen]
        self._seen |= {one.case.key for one in new}
        gating = [one for one in new if result.gates(one.case.id)]
        self._left_cases -= len(gating)
        cases = [one.case for one in new if one.is_complete]
        if not any(case.id in baseline.cases for case in cases):
            return result
        suite = SettledSuite(
            result,
            baseline,
            self._request.project,
            self._request.store,
            state=self._request.state,
            blind=self._request.blind or bool(self._request.injections),
        )
        changed = suite.without_unchanged(cases)
        on_partial(suite.result)
        suspects = suite.suspects(changed) if self._request.budget_s else []
        if suspects or worst_red(suite.result) is not None:
            self._settle(suite, suspects, self._rate(len(gating)), on_partial)
        return suite.result

    def _settle(
        self,
        suite: SettledSuite,
        suspects: Sequence[Suspect],
        rate: float,
        on_partial: Callable[[SuiteResult], None],
    ) -> None:
        """Launch the suspects, the most suspicious first, until their time is over."""
        began = self._clock()
        share_s = self._left_s * (_OF_A_SUITE if self._left_cases > 0 else 1.0)
        end = began + share_s
        rate_of_each = rate_of_pairs(rate, len(suspects)) if suspects else 0.0
        waiting = sorted(suspects, key=lambda one: -one.suspicion)
        searches = bool(waiting) and self._is_searchable(
            waiting[0].case, waiting[0].references[0].commit
        )
        pairs_end = end - share_s * _OF_SEARCH if searches else end

        def is_enough(result: SuiteResult) -> bool:
            return self._clock() >= pairs_end and worst_red(result) is not None

        try:
            while batch := fitting(waiting, end - self._clock()):
                for one in batch:
                    waiting.remove(one)
                rates = rate_of_each * len(batch)
                waiting += self._duel(suite, batch, rates, end, on_partial, is_enough)
                if is_enough(suite.result):
                    break
            self._search(suite, end)
        finally:
            self._left_s -= self._clock() - began
            suite.without_time(waiting, spent_s=self._request.budget_s - self._left_s)
            on_partial(suite.result)

    def _is_searchable(self, case: Case, good: str | None) -> bool:
        today = self._request.state
        if today is None or good is None or self._request.injections:
            return False
        return is_searchable(case, good, today, self._request.project)

    def _search(self, suite: SettledSuite, end: float) -> None:
        """Search the commit that made the worst red case slower, in the time that is left."""
        case, good = worst_red(suite.result) or (None, None)
        if case is None or self._clock() >= end or not self._is_searchable(case, good):
            return
        try:
            culprit = self._find(
                self._request, case, good, suite.result.environment, until=end, say=self._say
            )
        except DdpPerfError as error:
            self._say(f"the commit was not found: {error}")
        else:
            suite.note_search(case.id, culprit)

    def _rate(self, cases: int) -> float:
        """Return the share of the session's rate that these cases have."""
        share = cases / max(self._request.cases, cases)
        return share * self._request.false_alarm_rate

    def _duel(
        self,
        suite: SettledSuite,
        batch: Sequence[Suspect],
        rate: float,
        end: float,
        on_partial: Callable[[SuiteResult], None],
        is_enough: Callable[[SuiteResult], bool],
    ) -> list[Suspect]:
        """Run both codes in alternation, and return the cases that need an older session's code.

        The pairs end at ``end``, or once the result so far ``is_enough``.
        """
        reference, budget_s = batch[0].references[0], end - self._clock()
        self._say(_what_is_settled(batch, reference, budget_s))
        newest: Duel | None = None
        so_far = suite.result

        def note(duel: Duel) -> None:
            nonlocal newest, so_far
            newest, so_far = duel, suite.with_duel(duel, batch, reference)
            on_partial(so_far)

        problem: str | None = None
        needed_s: float | None = None
        lacks_suite = False
        try:
            with self._sides(reference, self._request.project, self._say) as (a, b):
                request = DuelRequest(
                    matched=match_cases(
                        a.prepared,
                        b.prepared,
                        self._request.capacity,
                        config=[self._suite_of(batch[0].case)],
                        ids=[one.case.id for one in batch],
                        overrides=self._request.overrides,
                    ),
                    budget_s=budget_s,
                    tolerance=None,
                    false_alarm_rate=rate,
                    calibrated={
                        one.case.id: suite.result.measurements[one.case.id].launches
                        for one in batch
                    },
                    injections=self._request.injections,
                )
                newest = run_duel(
                    request,
                    a,
                    b,
                    self._request.capacity,
                    on_update=note,
                    is_enough=lambda: is_enough(so_far),
                )
        except BudgetError as error:
            problem, needed_s = str(error), error.needed_s
        except ConfigError as error:  # the session has read the suite of today's side
            problem, lacks_suite = str(error), True
        except SideError as error:  # of an edit, for example: launches before and after differ
            problem, newest = str(error), None
        except DdpPerfError as error:
            problem = str(error)
        finally:
            if newest is not None:
                suite.keep(suite.with_duel(newest, batch, reference))
        return suite.after(
            newest, batch, problem=problem, needed_s=needed_s, lacks_suite=lacks_suite
        )

    def _suite_of(self, case: Case) -> Path:
        project = self._request.project
        file = suite_file(case.suite, project.suites)
        assert file is not None  # the case is from it
        root, file = project.root.resolve(), file.resolve()
        return file.relative_to(root) if file.is_relative_to(root) else file


def _what_is_settled(batch: Sequence[Suspect], reference: Reference, budget_s: float) -> str:
    first = batch[0]
    why = first.changed.texts[0] if first.changed.texts else "the code then is not known"
    return (
        f"settling {counted(len(batch), 'case')} of {first.case.suite} beside {reference.label},"
        f" for {describe_duration(budget_s)} at most: {first.case.id} first ({why})"
    )
