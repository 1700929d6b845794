"""The run of a duel: choice of cases, calibration, and blocks of pairs until each is decided."""

from __future__ import annotations

import datetime
import hashlib
import math
import random
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from ddp_perf.baselines.store import BaselineStore
from ddp_perf.core.baseline import Baseline
from ddp_perf.core.case import Case, Tier
from ddp_perf.core.injection import Injection
from ddp_perf.core.launch import LaunchRequest, LaunchResult
from ddp_perf.core.verdict import FALSE_ALARM_RATE, DuelOutcome
from ddp_perf.duel.case_run import CALIBRATING, PAIRING, CaseRun, explain_slower
from ddp_perf.duel.cases import MatchedCases
from ddp_perf.duel.inventory import conditions_of_sides
from ddp_perf.duel.open_sides import (
    CountDifference,
    OpenSide,
    count_both,
    differences,
    option_differences,
    side_conditions,
)
from ddp_perf.duel.touched import imported_by
from ddp_perf.duel.values import (
    Duel,
    MissingSide,
    PreparedSide,
    SideCase,
    SideConditions,
    SideName,
)
from ddp_perf.errors import BudgetError, SideError
from ddp_perf.render.units import counted, describe_duration
from ddp_perf.session.measure.experiment import (
    Arm,
    Block,
    Experiment,
    History,
    Log,
    LoggedLaunch,
    open_log,
    time_of,
)
from ddp_perf.session.measure.nights import most_telling_first
from ddp_perf.session.measure.rounds import expected_launch_s, stored_baseline
from ddp_perf.stats.pairs import CALIBRATION_LAUNCHES, plan_pair_looks
from ddp_perf.stats.rule.error_rate import alpha_per_metric
from ddp_perf.system.capacity import Capacity
from ddp_perf.system.ledger import Entries

# Edits of the user's tree while it is measured: its launches before and after do not compare.


class WatchedTree:
    """The files that ranks import or run from the user's tree, as they were at the beginning.

    If the tree is on both sides, an edit changes both alike, and nothing is watched.
    """

    def __init__(self, a: PreparedSide, b: PreparedSide, cases: Sequence[SideCase]) -> None:
        watched = [side for side in (a, b) if side.side.kind != "revision" and a.root != b.root]
        self._before = {
            (side.side.name, side.side.label, path): _digest(path)
            for side in watched
            for path in _sources(side, cases)
        }

    def check(self) -> None:
        """Raise SideError if a file was edited since."""
        for (name, label, path), digest in self._before.items():
            if _digest(path) != digest:
                raise SideError(
                    f"side {name} ({label}): {path.name} was edited while it was measured, so"
                    " that its launches do not compare; run the duel again, or commit and name the"
                    " revision"
                )


def _sources(side: PreparedSide, cases: Sequence[SideCase]) -> set[Path]:
    own = [case.of(side.side.name) for case in cases]
    found = imported_by(own, side.import_paths, side.root)
    return {path for imported in found.values() for path in imported.files}


def _digest(path: Path) -> bytes | None:
    try:
        return hashlib.sha256(path.read_bytes()).digest()
    except OSError:  # a module that is not there, and may be added
        return None


# The room that a time budget has for the pairs of a duel.


FIRST_LOOK = plan_pair_looks(1000)[0]  # pairs before the first verdict
MARGIN = 1.2  # of a suggested budget: launches do not all take equally long


def one_to_leave_out(
    runs: Sequence[CaseRun], spare: Sequence[str], *, budget_s: float, spent_s: float
) -> str | None:
    """Return the id of a spare case to leave out, so that the others have room; None if all have.

    It is one that has no room by itself, or else the first one. The last case is not left out.
    """
    rest = {run.id: rest_s(run) for run in runs if run.is_open}
    left_s = budget_s - spent_s
    candidates = [name for name in spare if name in rest]
    if len(rest) < 2 or not candidates or sum(rest.values()) <= left_s:
        return None
    return next((name for name in candidates if rest[name] > left_s), candidates[0])


def budget_allows_pairs(run: CaseRun, *, budget_s: float, spent_s: float) -> bool:
    """Return whether there is room for the calibration and two pairs, which are fewer than a look.

    True also before its first launch.
    """
    calibration_s = (CALIBRATION_LAUNCHES - len(run.duel.aa)) * (run.launch_s or 0.0)
    return spent_s + calibration_s + 2 * run.pair_s <= budget_s


def check_budget(runs: Sequence[CaseRun], *, budget_s: float, spent_s: float) -> None:
    """Raise BudgetError if the calibration and the first look at all cases take too long.

    It names the budget, or how many cases, that would do. A case that was not launched yet takes no
    time here, so that the error is raised as soon as it is certain.
    """
    rest = {run.id: rest_s(run) for run in runs if run.is_open}
    known = [seconds for seconds in rest.values() if seconds]
    if not known or spent_s + sum(known) <= budget_s:
        return
    need = spent_s + len(rest) * sum(known) / len(known)
    needed_s = _suggested(need)
    text = (
        f"the budget of {describe_duration(budget_s)} has no room for the calibration and"
        f" {FIRST_LOOK} pairs of {counted(len(rest), 'case')}, which take about"
        f" {describe_duration(need)}: raise it to {needed_s:g}s"
    )
    cheapest = min((name for name in rest if rest[name]), key=rest.__getitem__)
    if len(rest) > 1 and spent_s + rest[cheapest] <= budget_s:
        text += f", or compare fewer cases, such as {cheapest}"
    raise BudgetError(text, needed_s=needed_s)


def rest_s(run: CaseRun) -> float:
    """Return the seconds that a case takes up to its first look; 0 before its first launch."""
    if run.launch_s is None:
        return 0.0
    return (CALIBRATION_LAUNCHES - len(run.duel.aa)) * run.launch_s + FIRST_LOOK * run.pair_s


def most_pairs(run: CaseRun, runs: Sequence[CaseRun], left_s: float) -> int:
    """Return the number of pairs of a case that there is room for.

    All others are taken to be decided at the first look, as most are: a plan of too many pairs
    costs a duel little that ends before them, and one of too few leaves the rest of its time.
    """
    others = sum(FIRST_LOOK * other.pair_s for other in runs if other.is_open and other is not run)
    return max(FIRST_LOOK, int((left_s - others) / run.pair_s)) if run.pair_s else FIRST_LOOK


def _suggested(seconds: float) -> float:
    return 30.0 * math.ceil(MARGIN * seconds / 30)


# The run of a duel: calibration, then blocks of pairs until each case is decided.


DEFAULT_BUDGET_S = 180.0
DEFAULT_TOLERANCE = 0.05
_OF_COUNTS = 0.5  # as a share of the budget, and after it: the time to count cases not SLOWER
PAIRS_A_SERVER = 3  # of each case


class DuelRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The order of a duel: what it compares, in which time, and how often it may be wrong."""

    matched: MatchedCases
    budget_s: float = DEFAULT_BUDGET_S
    tolerance: float | None = DEFAULT_TOLERANCE  # None: that of each metric of the case
    false_alarm_rate: float = FALSE_ALARM_RATE
    seed: int | None = None  # of the order of launches; None: another one each time
    counts: bool = True  # count the steps of both sides; False: it was done before
    # Launches of one side just before, by case id: they take the place of the calibration's own.
    calibrated: Mapping[str, Sequence[LaunchResult]] = {}
    injections: tuple[Injection, ...] = ()  # they slow the ranks of side B on purpose


def open_duel_log(
    directory: Path,
    request: DuelRequest,
    a: PreparedSide,
    b: PreparedSide,
    capacity: Capacity,
) -> Log:
    """Open the log of a duel, from which the same duel goes on if it was ended.

    Close it. Raises ResultsError, and SideError if packages cannot be listed.
    """
    cases = [case for both in request.matched.cases for case in (both.a, both.b)]
    question = {
        "A": a.side.spec,
        "B": b.side.spec,
        "cases": " ".join(both.id for both in request.matched.cases),
        "budget": f"{request.budget_s:g}",
        "tolerance": str(request.tolerance),
    }
    machine = f"{capacity.host.name}, {capacity.accelerator_key(cases[0].tier)}"
    conditions = conditions_of_sides(a, b, cases, machine)
    return open_log(directory, question, conditions)


def run_duel(
    request: DuelRequest,
    a: OpenSide,
    b: OpenSide,
    capacity: Capacity,
    *,
    on_update: Callable[[Duel], None],
    is_enough: Callable[[], bool] = lambda: False,
    log: Entries[LoggedLaunch] | None = None,
) -> Duel:
    """Compare the sides until each case is decided, or the budget is over; then count their steps.

    ``on_update`` receives what is finished, as an incomplete duel: after each launch, and also if
    an interrupt ends the run, which is raised then. ``is_enough`` is asked before each block of
    pairs, and ends them if it is True. A later run goes on from ``log``. Spare cases that turn out
    to have no room are left out. Raises BudgetError if there is no room for the first look at all
    others, LaunchError if ranks cannot be started, and SideError if the user edits a workload that
    is being measured.
    """
    log = Entries[LoggedLaunch]() if log is None else log
    run = _DuelRun(request, a, b, log, is_enough)

    def note(launch: LoggedLaunch) -> None:
        run.read(log.entries)
        on_update(run.duel())

    try:
        experiment = Experiment(
            log, seed=request.seed, launches_a_server=PAIRS_A_SERVER, keeps_results=True
        )
        start_s = run.prepare(capacity)
        until = time.monotonic() + request.budget_s - run.time.spent_s
        experiment.run(run, until=until, start_s=start_s, on_launch=note)
        run.check_calibrated()
        run.count(on_update)
    except BudgetError as error:
        run.needed_s = error.needed_s
        raise
    finally:
        run.end()
        on_update(run.duel())
    return run.duel(complete=True)


class _DuelTime:
    """The time of a duel, with that of the runs before it."""

    def __init__(self, log: Entries[LoggedLaunch]) -> None:
        self.began = datetime.datetime.now(datetime.timezone.utc)
        self._start = time.monotonic() - time_of(log.entries)
        self.measured_s: float | None = None  # until the counts began; None: they did not

    @property
    def spent_s(self) -> float:
        return time.monotonic() - self._start


class _DuelRun:
    """A duel while it runs, as the policy of its launches."""

    def __init__(
        self,
        request: DuelRequest,
        a: OpenSide,
        b: OpenSide,
        log: Entries[LoggedLaunch],
        is_enough: Callable[[], bool],
    ) -> None:
        self._request, self._sides, self._log = request, (a, b), log
        self._is_enough = is_enough
        self._order = random.Random(request.seed)
        self.time = _DuelTime(log)
        self._runs = {
            cases.id: CaseRun(cases, calibrated=request.calibrated.get(cases.id, ()))
            for cases in request.matched.cases
        }
        self._tree = WatchedTree(a.prepared, b.prepared, request.matched.cases)
        self._left_out = [*request.matched.left_out]
        self._conditions: dict[SideName, SideConditions] = {}
        self._alpha = request.false_alarm_rate
        self._is_planned = False
        self._read = 0  # launches of the log
        self._block, self._waiting = -1, list[CaseRun]()  # cases that are next in this block
        self.needed_s: float | None = None  # a budget with room for all cases, if this one has none

    @property
    def _open(self) -> list[CaseRun]:
        return [run for run in self._runs.values() if run.is_open]

    def prepare(self, capacity: Capacity) -> float:
        """Start the servers of each side, and find what differs without measuring it.

        Return how long the servers of a side took.
        """
        cases, begin = self._request.matched.cases, time.monotonic()
        for side in self._sides:
            self._conditions[side.name] = side_conditions(side, cases, capacity)
            for each in cases:  # a server of its own must not start in the time of a launch
                side.launcher.runtime(each.of(side.name))
        start_s = (time.monotonic() - begin) / len(self._sides)
        a, b = self._sides
        for run in self._runs.values():
            options = option_differences(run.duel.cases, a.prepared, b.prepared)
            run.duel = msgspec.structs.replace(run.duel, options=options)
        return start_s

    def next(self, history: History) -> Block | None:
        """Return the next launch of the calibration, and after it the next pair.

        Pairs end once no case is undecided, or the budget has no room for a pair. Raises
        BudgetError, and SideError if a file was edited.
        """
        self.read(history)
        if (run := self._to_calibrate()) is not None:
            # Every other launch trains from other addresses: those of a pair are of one kind, as
            # all of these are.
            return Block(2 * run.calibrated, (self._arm(run, self._sides[0]),), CALIBRATING)
        self._plan()
        while (run := self._to_pair()) is None:
            self._end_block()
            self._tree.check()
            going_on = [one for one in self._open if self._has_room(one)]
            if not going_on or self._is_enough():
                return None
            self._waiting = self._order.sample(going_on, len(going_on))
            self._block += 1
        return Block(self._block, tuple(self._arm(run, side) for side in self._sides), PAIRING)

    def read(self, history: History) -> None:
        """Add the launches that are new. Those of an earlier run are read first."""
        for launch in history[self._read :]:
            if launch.phase == PAIRING and launch.block != self._block:
                self._plan()
                self._end_block()
                self._block = launch.block
            if (run := self._runs.get(launch.case_id)) is not None:
                run.add(launch)
            self._read += 1
            if self._read == self._log.earlier and self._block >= 0:  # it ended within this block
                self._waiting = [run for run in self._open if not run.has_pair(self._block)]

    def _to_calibrate(self) -> CaseRun | None:
        """Return the case whose launch of side A comes next. Raises BudgetError."""
        if self._is_planned:
            return None
        self._fit_into_budget()
        fewest = min(self._open, key=lambda run: run.calibrated, default=None)
        return None if fewest is None or fewest.calibrated >= CALIBRATION_LAUNCHES else fewest

    def check_calibrated(self) -> None:
        """Raise BudgetError if the time is over before the calibration is."""
        self._to_calibrate()

    def _to_pair(self) -> CaseRun | None:
        while self._waiting:
            run = self._waiting.pop(0)
            if run.is_open and self._has_room(run):
                return run
        return None

    def _arm(self, run: CaseRun, side: OpenSide) -> Arm:
        request = LaunchRequest(
            case=run.duel.cases.of(side.name),
            round=0,
            import_paths=side.import_paths,
            injections=self._request.injections if side.name == "B" else (),
        )
        return Arm(side.name, side.launcher, request)

    def _plan(self) -> None:
        """Plan each case by its calibration."""
        if self._is_planned:
            return
        self._is_planned = True
        for run in [run for run in self._open if run.calibrated < CALIBRATION_LAUNCHES]:
            self._leave_out(run.id)  # as an earlier run did
        rate = alpha_per_metric(self._request.false_alarm_rate, len(self._runs))
        calibrating = [one for one in self._log.entries if one.phase == CALIBRATING]
        left_s = self._request.budget_s - (time_of(calibrating) or self.time.spent_s)
        for run in self._open:
            plan = run.plan(
                most=most_pairs(run, self._open, left_s),
                rate=rate,
                tolerance=self._request.tolerance,
                with_single=run.single in self._runs,
            )
            self._alpha = plan.plans[plan.time].alpha

    def _fit_into_budget(self) -> None:
        """Leave out spare cases until the others have room. Raises BudgetError if they have none.

        The last one of spare cases goes on with fewer pairs than the first look has.
        """
        budget_s, spare = self._request.budget_s, self._request.matched.spare
        spent_s = self.time.spent_s
        while name := one_to_leave_out(
            list(self._runs.values()), spare, budget_s=budget_s, spent_s=spent_s
        ):
            self._leave_out(name)
        is_last = bool(spare) and len(self._open) == 1
        if is_last and budget_allows_pairs(self._open[0], budget_s=budget_s, spent_s=spent_s):
            return
        check_budget(list(self._runs.values()), budget_s=budget_s, spent_s=spent_s)

    def _leave_out(self, case_id: str) -> None:
        del self._runs[case_id]
        budget = describe_duration(self._request.budget_s)
        reason = f"the budget of {budget} turned out to have no room for it"
        self._left_out.append(MissingSide(case_id=case_id, reason=reason))

    def _end_block(self, *, ended: bool = False) -> None:
        """Judge the open cases if it is time to look at them, or if the pairs have ``ended``."""
        for run in self._open:
            single = self._runs.get(run.single or "")
            run.judge(None if single is None else single.duel, ended=ended)

    def count(self, on_update: Callable[[Duel], None]) -> None:
        """Count the steps of both sides, those of slower cases first: the counts explain them."""
        self._end_block(ended=True)
        if not self._request.counts:
            return
        self.time.measured_s = self.time.spent_s
        end_s = self.time.spent_s + _OF_COUNTS * self._request.budget_s
        runs = sorted(
            self._runs.values(), key=lambda run: run.duel.outcome is not DuelOutcome.SLOWER
        )
        for run in runs:
            if run.duel.outcome is not DuelOutcome.SLOWER and self.time.spent_s > end_s:
                found = CountDifference(uncounted="it is not slower, and there was no time for it")
            else:
                found = count_both(run.duel, *self._sides)
            run.duel = found.added_to(run.duel)
            on_update(self.duel())

    def end(self) -> None:
        """Judge what is undecided by the pairs that there are, and explain what is slower."""
        self._end_block(ended=True)
        for run in self._runs.values():
            if run.duel.outcome is DuelOutcome.SLOWER and len(self._conditions) == 2:
                explanation = explain_slower(
                    run.duel, self._conditions["A"].environment, self._conditions["B"].environment
                )
                run.duel = msgspec.structs.replace(run.duel, explanation=explanation)

    def duel(self, *, complete: bool = False) -> Duel:
        """Return what is finished so far."""
        both = len(self._conditions) == 2
        spent_s, measured_s = self.time.spent_s, self.time.measured_s
        return Duel(
            a=self._sides[0].prepared.side,
            b=self._sides[1].prepared.side,
            began=self.time.began.isoformat(timespec="seconds"),
            wall_s=spent_s,
            measured_s=spent_s if measured_s is None else measured_s,
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
        return self.time.spent_s + run.pair_s <= self._request.budget_s


# The cases of a duel that nobody named: the most telling ones that its budget has room for.
#
# How long a case takes is known by stored sessions, or assumed.


_LAUNCHES = CALIBRATION_LAUNCHES + 2 * FIRST_LOOK  # of a case, up to its first look
# Of a duel whose budget nobody stated. On GPUs a launch is assumed to take 11 s, so that 3 minutes
# have no room for one case.
_DEFAULT_S: dict[Tier, float] = {"cpu": 180.0, "gpu": 600.0}


def default_budget_s(matched: MatchedCases) -> float:
    """Return the seconds of a duel of these cases if nobody states them, by their tier."""
    return _DEFAULT_S[matched.cases[0].b.tier]


def choose_cases(
    matched: MatchedCases,
    *,
    budget_s: float,
    launch_s: Callable[[Case], float],
    fits: Callable[[Case], bool],
) -> MatchedCases:
    """Return the cases that the budget has room for, at least one; the others are left out.

    ``launch_s`` is what a launch of a case is expected to take. What this machine cannot run is
    left out, too, instead of missing.
    """
    sides = {one.b.key: one for one in matched.cases}
    telling = most_telling_first([one.b for one in matched.cases], fits)
    order = [sides[case.key] for case in telling]
    spent_s, chosen = 0.0, list[SideCase]()
    for case in order:
        spent_s += _LAUNCHES * launch_s(case.b)
        if chosen and spent_s > budget_s:
            break
        chosen.append(case)
    ids = {case.id for case in chosen}
    reason = f"the budget of {describe_duration(budget_s)} has no room for it"
    return msgspec.structs.replace(
        matched,
        cases=tuple(case for case in matched.cases if case.id in ids),
        missing=tuple(one for one in matched.missing if not one.unfit),
        left_out=(
            *(MissingSide(case_id=c.id, reason=reason) for c in order if c.id not in ids),
            *(one for one in matched.missing if one.unfit),
        ),
        spare=tuple(case.id for case in reversed(chosen)),
    )


def stored_launch_s(store: BaselineStore, capacity: Capacity) -> Callable[[Case], float]:
    """Return what a launch of a case takes by this machine's stored sessions, or is assumed to."""
    baselines: dict[Tier, Baseline] = {}

    def seconds(case: Case) -> float:
        if case.tier not in baselines:
            baselines[case.tier] = stored_baseline(store, capacity, case.tier)
        return expected_launch_s(case, baselines[case.tier])

    return seconds


def choice_text(matched: MatchedCases, budget_s: float) -> str | None:
    """Return which cases were chosen, and why; None if none was left out for want of time."""
    unchosen = [one for one in matched.left_out if not one.unfit]
    if not unchosen:
        return None
    names = ", ".join(reversed(matched.spare))
    return (
        f"{describe_duration(budget_s)} have room for {len(matched.cases)} of"
        f" {counted(len(matched.cases) + len(unchosen), 'case')}, by the launches that are stored,"
        " or else assumed. Chosen from the core of the suites, one of each before a second:"
        f" {names}"
    )
