"""The run of a duel: calibration, then blocks of pairs until each case is decided."""

from __future__ import annotations

import datetime
import random
import time
from collections.abc import Callable, Mapping, Sequence

import msgspec

from ddp_perf.core.duel import DuelOutcome
from ddp_perf.core.injection import Injection
from ddp_perf.core.launch import LaunchResult
from ddp_perf.duel.case_run import CaseRun
from ddp_perf.duel.cases import MatchedCases
from ddp_perf.duel.conditions import differences, option_differences, side_conditions
from ddp_perf.duel.counted import CountDifference, count_both
from ddp_perf.duel.edits import WatchedTree
from ddp_perf.duel.explained import explain_slower
from ddp_perf.duel.open_sides import OpenSide
from ddp_perf.duel.room import (
    check_room,
    has_room_for_pairs,
    most_pairs,
    one_to_leave_out,
)
from ddp_perf.duel.values import CaseDuel, Duel, MissingSide, SideConditions, SideName
from ddp_perf.errors import BudgetError
from ddp_perf.render.units import describe_duration
from ddp_perf.stats.duel.yardstick import CALIBRATION_LAUNCHES
from ddp_perf.stats.rule.error_rate import alpha_per_metric
from ddp_perf.system.capacity import Capacity

DEFAULT_BUDGET_S = 180.0
DEFAULT_TOLERANCE = 0.05
DEFAULT_FALSE_ALARM_RATE = 0.01
_OF_COUNTS = 0.5  # as a share of the budget, and after it: the time to count cases not SLOWER
PAIRS_A_SERVER = 3  # of each case: forks of one server are alike
_OF_START = 0.05  # of the time that is left: servers that take longer to start are not renewed


class DuelRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The order of a duel: what it compares, in which time, and how often it may be wrong."""

    matched: MatchedCases
    budget_s: float = DEFAULT_BUDGET_S
    tolerance: float | None = DEFAULT_TOLERANCE  # None: that of each metric of the case
    false_alarm_rate: float = DEFAULT_FALSE_ALARM_RATE
    seed: int | None = None  # of the order of launches; None: another one each time
    counts: bool = True  # count the steps of both sides; False: it was done before
    # Launches of one side just before, by case id: they take the place of the calibration's own.
    calibrated: Mapping[str, Sequence[LaunchResult]] = {}
    injections: tuple[Injection, ...] = ()  # they slow the ranks of side B on purpose


def run_duel(
    request: DuelRequest,
    a: OpenSide,
    b: OpenSide,
    capacity: Capacity,
    *,
    on_update: Callable[[Duel], None],
    is_enough: Callable[[], bool] = lambda: False,
) -> Duel:
    """Compare the sides until each case is decided, or the budget is over; then count their steps.

    ``on_update`` receives what is finished, as an incomplete duel: after each pair, and also if an
    interrupt ends the run, which is raised then. ``is_enough`` is asked before each block of pairs,
    and ends them if it is True. Spare cases that turn out to have no room are left out. Raises
    BudgetError if there is no room for the first look at all others, LaunchError if ranks cannot be
    started, and SideError if the user edits a workload that is being measured.
    """
    run = _DuelRun(request, a, b, on_update)
    try:
        run.prepare(capacity)
        run.calibrate()
        run.measure(is_enough)
        run.count()
    except BudgetError as error:
        run.needed_s = error.needed_s
        raise
    finally:
        run.end()
        on_update(run.duel())
    return run.duel(complete=True)


class _DuelRun:
    """A duel while it runs."""

    def __init__(
        self, request: DuelRequest, a: OpenSide, b: OpenSide, on_update: Callable[[Duel], None]
    ) -> None:
        self._request = request
        self._a, self._b = a, b
        self._on_update = on_update
        self._order = random.Random(request.seed)
        self._began = datetime.datetime.now(datetime.timezone.utc)
        self._start = time.monotonic()
        self._start_s = 0.0  # of the servers of both sides
        self._measured_s: float | None = None  # until the counts began; None: they did not
        self._runs = {
            cases.id: CaseRun(
                cases,
                a,
                b,
                calibrated=request.calibrated.get(cases.id, ()),
                injections=request.injections,
            )
            for cases in request.matched.cases
        }
        self._tree = WatchedTree(a.prepared, b.prepared, request.matched.cases)
        self._left_out = [*request.matched.left_out]
        self._conditions: dict[SideName, SideConditions] = {}
        self._alpha = request.false_alarm_rate
        self.needed_s: float | None = None  # a budget with room for all cases, if this one has none

    @property
    def _spent_s(self) -> float:
        return time.monotonic() - self._start

    @property
    def _open(self) -> list[CaseRun]:
        return [run for run in self._runs.values() if run.is_open]

    def prepare(self, capacity: Capacity) -> None:
        """Start the servers of each side, and find what differs without measuring it."""
        cases = self._request.matched.cases
        for side in (self._a, self._b):
            self._conditions[side.name] = side_conditions(side, cases, capacity)
            for each in cases:  # a server of its own must not start in the time of a launch
                side.launcher.runtime(each.of(side.name))
        self._start_s = self._spent_s
        for run in self._runs.values():
            options = option_differences(run.duel.cases, self._a.prepared, self._b.prepared)
            run.duel = msgspec.structs.replace(run.duel, options=options)

    def calibrate(self) -> None:
        """Run launches of side A alone, and plan each case by it. Raises BudgetError."""
        for number in range(CALIBRATION_LAUNCHES):
            for run in list(self._runs.values()):
                if not run.is_open or run.id not in self._runs:
                    continue
                if number >= run.calibrated:
                    run.calibrate(number)
                    self._on_update(self.duel())
                self._make_room()
        rate = alpha_per_metric(self._request.false_alarm_rate, len(self._runs))
        left_s = self._request.budget_s - self._spent_s
        for run in self._open:
            plan = run.plan(
                most=most_pairs(run, self._open, left_s),
                rate=rate,
                tolerance=self._request.tolerance,
                with_single=run.single in self._runs,
            )
            self._alpha = plan.plans[plan.time].alpha

    def _make_room(self) -> None:
        """Leave out spare cases until the others have room. Raises BudgetError if they have none.

        The last one of spare cases goes on with fewer pairs than the first look has.
        """
        budget_s, spare = self._request.budget_s, self._request.matched.spare
        while name := one_to_leave_out(
            list(self._runs.values()), spare, budget_s=budget_s, spent_s=self._spent_s
        ):
            del self._runs[name]
            reason = (
                f"the budget of {describe_duration(budget_s)} turned out to have no room for it"
            )
            self._left_out.append(MissingSide(case_id=name, reason=reason))
        is_last = bool(spare) and len(self._open) == 1
        if is_last and has_room_for_pairs(self._open[0], budget_s=budget_s, spent_s=self._spent_s):
            return
        check_room(list(self._runs.values()), budget_s=budget_s, spent_s=self._spent_s)

    def measure(self, is_enough: Callable[[], bool]) -> None:
        """Run blocks of pairs while a case is undecided and the budget has room for a pair."""
        block = 0
        while (runs := [run for run in self._open if self._has_room(run)]) and not is_enough():
            for run in self._order.sample(runs, len(runs)):
                if self._has_room(run):
                    run.launch_pair(block, self._order)
                    self._on_update(self.duel())
            self._tree.check()
            for run in runs:
                run.judge(self._single_of(run), ended=False)
            self._on_update(self.duel())
            block += 1
            if block % PAIRS_A_SERVER == 0:
                self._renew_servers()
        self._judge_open()

    def _renew_servers(self) -> None:
        """End the servers, so that the next pairs are forks of others.

        Forks of one server share its addresses, which may make a side a little slower each time.
        Raises LaunchError if one does not start again.
        """
        going_on = [run for run in self._open if self._has_room(run)]
        left_s = self._request.budget_s - self._spent_s
        if not going_on or self._start_s > _OF_START * left_s:
            return
        for side in (self._a, self._b):
            side.launcher.close()
            for run in going_on:
                side.launcher.runtime(run.duel.cases.of(side.name))

    def count(self) -> None:
        """Count the steps of both sides, those of slower cases first: the counts explain them."""
        if not self._request.counts:
            return
        self._measured_s = self._spent_s
        end_s = self._spent_s + _OF_COUNTS * self._request.budget_s
        runs = sorted(
            self._runs.values(), key=lambda run: run.duel.outcome is not DuelOutcome.SLOWER
        )
        for run in runs:
            if run.duel.outcome is not DuelOutcome.SLOWER and self._spent_s > end_s:
                found = CountDifference(uncounted="it is not slower, and there was no time for it")
            else:
                found = count_both(run.duel, self._a, self._b)
            run.duel = found.added_to(run.duel)
            self._on_update(self.duel())

    def end(self) -> None:
        """Judge what is undecided by the pairs that there are, and explain what is slower."""
        self._judge_open()
        for run in self._runs.values():
            if run.duel.outcome is DuelOutcome.SLOWER and len(self._conditions) == 2:
                explanation = explain_slower(
                    run.duel, self._conditions["A"].environment, self._conditions["B"].environment
                )
                run.duel = msgspec.structs.replace(run.duel, explanation=explanation)

    def _judge_open(self) -> None:
        for run in self._open:
            run.judge(self._single_of(run), ended=True)

    def duel(self, *, complete: bool = False) -> Duel:
        """Return what is finished so far."""
        both = len(self._conditions) == 2
        return Duel(
            a=self._a.prepared.side,
            b=self._b.prepared.side,
            began=self._began.isoformat(timespec="seconds"),
            wall_s=self._spent_s,
            measured_s=self._spent_s if self._measured_s is None else self._measured_s,
            budget_s=self._request.budget_s,
            false_alarm_rate=self._request.false_alarm_rate,
            alpha=self._alpha,
            cases=tuple(run.duel for run in self._runs.values()),
            missing=self._request.matched.missing,
            left_out=tuple(self._left_out),
            conditions=dict(self._conditions),
            differences=differences(*self._conditions.values()) if both else (),
            needed_s=self.needed_s,
            complete=complete,
        )

    def _has_room(self, run: CaseRun) -> bool:
        return self._spent_s + run.pair_s <= self._request.budget_s

    def _single_of(self, run: CaseRun) -> CaseDuel | None:
        single = self._runs.get(run.single or "")
        return single.duel if single is not None else None
