"""Sequential halving: after each rung the slower half of the settings is dropped; the result."""

from __future__ import annotations

import contextlib
import math
import random
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any, Literal

import msgspec

from ddp_perf.core.case import Case
from ddp_perf.core.launch import LaunchFailure, LaunchRequest, LaunchResult
from ddp_perf.core.verdict import DuelOutcome, PairedVerdict
from ddp_perf.duel.open_sides import Turn, launch_turns
from ddp_perf.duel.sweep.settings import LeftOut, Setting, Settings
from ddp_perf.errors import LaunchError
from ddp_perf.launch.launcher import Launcher, Runtime
from ddp_perf.stats.interval import PairedRatio, ratio_of_positive
from ddp_perf.stats.pairs import PairedPlan, best_chances, judge_pairs, plan_pair_looks
from ddp_perf.stats.summary import step_level

# A launcher with a server for each environment.


_Environment = frozenset[tuple[str, str]]


class EnvironmentLauncher:
    """A launcher that has a launcher of its own, made by ``make``, for each environment."""

    def __init__(self, make: Callable[[], Launcher]) -> None:
        self._make = make
        self._launchers: dict[_Environment, Launcher] = {}

    def nodes(self, case: Case) -> tuple[str, ...]:
        return self._of(case).nodes(case)

    def runtime(self, case: Case | None = None) -> Runtime:
        return self._of(case).runtime(case)

    def launch(self, request: LaunchRequest) -> LaunchResult | LaunchFailure:
        """Launch in the server of the case. One that does not start is a failure of the case."""
        try:
            return self._of(request.case).launch(request)
        except LaunchError as error:
            return LaunchFailure(
                case_id=request.case.id,
                round=request.round,
                kind="server",
                rank=None,
                detail=str(error),
            )

    def close(self) -> None:
        """End every server. The next launch of an environment starts another one."""
        with contextlib.ExitStack() as stack:
            while self._launchers:
                stack.callback(self._launchers.popitem()[1].close)

    def _of(self, case: Case | None) -> Launcher:
        key = _environment(case)
        if key not in self._launchers:
            self._launchers[key] = self._make()
        return self._launchers[key]


def _environment(case: Case | None) -> _Environment:
    return frozenset(case.env.items()) if case is not None else frozenset()


# Sequential halving: all settings in turn, and after each rung the slower half is dropped.
#
# Karnin, Koren & Somekh, "Almost Optimal Exploration in Multi-Armed Bandits", ICML 2013; the same
# rule as successive halving of Jamieson & Talwalkar, AISTATS 2016, with a rung's share of the time
# in place of a number of pulls. In each block the suite's own setting and all that remain are
# launched once, in random order, so that what slows the machine down for minutes slows all of them
# down.
#
# The suite's own setting is never dropped. The last rung has one other setting, chosen before: its
# launches judge it without the bias of having been chosen by them.


WORTH = 0.01  # a smaller gain is not worth a change of the suite
ALPHA = 0.01  # of FASTER, and as much of SLOWER


class SweepBlock(msgspec.Struct, frozen=True, kw_only=True):
    """One launch of each remaining setting: the level of a step, in seconds, by name."""

    rung: int  # the first one is 1
    base_s: float
    step_s: dict[str, float]


class SweepRun:
    """The launches of a sweep. What was measured stays readable if ``run`` is interrupted."""

    def __init__(self, settings: Settings, launcher: EnvironmentLauncher) -> None:
        self.settings = settings
        self.blocks: list[SweepBlock] = []
        self.dropped: dict[str, int] = {}  # rung at whose end a setting was dropped, by name
        self.failures: dict[str, LaunchFailure] = {}
        self.verdict: PairedVerdict | None = None  # on the last rung; None: it was not reached
        self.complete = False
        self._launcher = launcher
        self._launch_s: list[float] = []  # mean of each block: the time that the next one takes
        self._order = random.Random()

    @property
    def remaining(self) -> list[Setting]:
        gone = self.dropped.keys() | self.failures.keys()
        return [setting for setting in self.settings.tried if setting.name not in gone]

    @property
    def rungs(self) -> int:
        """The number of rungs: the last one has one setting beside the suite's own."""
        return 1 + math.ceil(math.log2(len(self.settings.tried)))

    def run(
        self, import_paths: tuple[str, ...], *, until: float, on_launch: Callable[[int], None]
    ) -> LaunchFailure | None:
        """Run launches until one setting is judged, or ``time.monotonic()`` is ``until``.

        Return the failure of the suite's own setting, which ends the sweep, or None.
        ``on_launch`` receives the number of launches that are done. Raises LaunchError if ranks
        cannot be started.
        """
        for rung in range(1, self.rungs + 1):
            share_s = max(0.0, until - time.monotonic()) / (self.rungs + 1 - rung)
            rung_until = time.monotonic() + share_s
            plan = self._plan(share_s) if len(self.remaining) == 1 else None
            while self._goes_on(rung, rung_until, plan):
                failure = self._block(rung, import_paths)
                if failure is not None:
                    return failure
                on_launch(sum(1 + len(block.step_s) for block in self.blocks))
            if plan is not None or not self.remaining:
                break
            if time.monotonic() >= until:
                return None
            self._halve(rung)
        self.complete = True
        return None

    def _goes_on(self, rung: int, until: float, plan: PairedPlan | None) -> bool:
        """Return True if the rung needs another block: at least one, and then while time is left.

        The last rung ends as soon as it is decided.
        """
        done = [block for block in self.blocks if block.rung == rung]
        if not self.remaining:
            return False
        cost_s = (1 + len(self.remaining)) * (self._launch_s[-1] if self._launch_s else 0.0)
        ended = bool(done) and time.monotonic() + cost_s > until
        if plan is not None and done:
            ended = ended or len(done) >= plan.looks[-1]
            if ended or len(done) in plan.looks:
                self.verdict = judge_pairs(self._logs(done), plan, ended=ended)
                # The next pairs are forks of other servers: forks of one share its addresses, which
                # may make a setting a little slower each time.
                self._launcher.close()
                ended = ended or self.verdict.outcome is not DuelOutcome.UNDECIDED
        return not ended

    def _plan(self, share_s: float) -> PairedPlan:
        """Plan the last rung by the time that a block of it takes."""
        launch_s = self._launch_s[-1] if self._launch_s else share_s / 20
        most = max(2, int(share_s / (2 * launch_s))) if launch_s > 0 else 20
        return PairedPlan(alpha=ALPHA, tolerance=WORTH, looks=plan_pair_looks(most))

    def _logs(self, blocks: list[SweepBlock]) -> list[float]:
        (name,) = (setting.name for setting in self.remaining)
        return [math.log(block.step_s[name] / block.base_s) for block in blocks]

    def _block(self, rung: int, import_paths: tuple[str, ...]) -> LaunchFailure | None:
        """Run a launch of all that remain. A setting that fails is not launched again."""
        remaining = self.remaining
        cases = [self.settings.base, *(setting.case for setting in remaining)]
        turns = [Turn(self._launcher, case, import_paths) for case in cases]
        began = time.monotonic()
        base, *others = launch_turns(turns, block=len(self.blocks), order=self._order)
        if isinstance(base, LaunchFailure):
            return base
        results: dict[str, float] = {}
        for setting, outcome in zip(remaining, others, strict=True):
            if isinstance(outcome, LaunchFailure):
                self.failures[setting.name] = outcome
            else:
                results[setting.name] = self._level(outcome, setting.case)
        self._launch_s.append((time.monotonic() - began) / len(turns))
        base_s = self._level(base, self.settings.base)
        self.blocks.append(SweepBlock(rung=rung, base_s=base_s, step_s=results))
        return None

    def _level(self, launch: LaunchResult, case: Case) -> float:
        """Return the level of as much of a step as the suite's own step has samples."""
        return step_level(launch) * self.settings.base.samples_per_step / case.samples_per_step

    def _halve(self, rung: int) -> None:
        """Drop the slower half by the mean of all launches, and renew the servers."""
        order = sorted(self.remaining, key=lambda setting: self._mean(setting.name))
        for setting in order[math.ceil(len(order) / 2) :]:
            self.dropped[setting.name] = rung
        self._launcher.close()

    def _mean(self, name: str) -> float:
        logs = (math.log(b.step_s[name] / b.base_s) for b in self.blocks if name in b.step_s)
        return statistics.fmean(logs)


# The result of a sweep: each setting beside the suite's own, and how sure the best one is.


class SettingResult(msgspec.Struct, frozen=True, kw_only=True):
    """One setting. Step times are those of as many samples as the suite's own step has."""

    name: str
    changes: dict[str, Any]  # of the suite, by field
    launches: int
    step_s: float | None  # median over its launches; None: it was not measured
    # Its step ÷ that of the suite's own setting, over the blocks that it was in; 95 % interval.
    ratio: PairedRatio | None
    dropped: int | None  # rung at whose end it was dropped; None: it was not
    failure: str | None  # of a launch, after which it was not launched again
    chance: float | None  # probability that it is the fastest; None: not known


class SweepResult(msgspec.Struct, frozen=True, kw_only=True):
    """A whole sweep, or what an interrupted one measured."""

    schema_version: Literal[1] = 1
    case_id: str
    suite: str
    began: str  # ISO 8601, UTC
    wall_s: float
    budget_s: float
    runtime: Runtime
    rungs: int  # planned
    base_step_s: float | None  # of the suite's own setting: median over its launches
    base_launches: int
    base_chance: float | None  # probability that it is the fastest
    settings: tuple[SettingResult, ...]  # the one that lasted longest first
    left_out: tuple[LeftOut, ...]
    best: str | None  # a setting; None: the suite's own, or too little was measured
    verdict: PairedVerdict | None  # on the last setting, by the last rung alone; None: not reached
    alpha: float = ALPHA  # of FASTER, and as much of SLOWER
    tolerance: float = WORTH  # within which the settings are EQUIVALENT, as a fraction
    complete: bool

    @property
    def is_faster(self) -> bool:
        """True if the launches of the last rung show that the best setting is faster."""
        return self.verdict is not None and self.verdict.outcome is DuelOutcome.FASTER


def sweep_result(
    run: SweepRun, *, began: str, wall_s: float, budget_s: float, runtime: Runtime
) -> SweepResult:
    """Return what the launches of a sweep show."""
    base, blocks = run.settings.base, run.blocks
    base_chance, chances = _chances(blocks)
    results = [_result(run, setting, chances.get(setting.name)) for setting in run.settings.tried]
    return SweepResult(
        case_id=base.id,
        suite=base.suite,
        began=began,
        wall_s=wall_s,
        budget_s=budget_s,
        runtime=runtime,
        rungs=run.rungs,
        base_step_s=statistics.median(b.base_s for b in blocks) if blocks else None,
        base_launches=len(blocks),
        base_chance=base_chance,
        settings=tuple(sorted(results, key=_place)),
        left_out=run.settings.left_out,
        best=_best(run),
        verdict=run.verdict,
        complete=run.complete,
    )


def _chances(blocks: Sequence[SweepBlock]) -> tuple[float | None, dict[str, float]]:
    """Return the probability of being the fastest, of the suite's own setting and of the others."""
    if len(blocks) < 2:
        return None, {}
    names = list(dict.fromkeys(name for block in blocks for name in block.step_s))
    rows = [[math.log(b.base_s), *(_log(b.step_s.get(name)) for name in names)] for b in blocks]
    base, *others = best_chances(rows)
    return base, dict(zip(names, others, strict=True))


def _log(value: float | None) -> float | None:
    return None if value is None else math.log(value)


def _result(run: SweepRun, setting: Setting, chance: float | None) -> SettingResult:
    beside = [block for block in run.blocks if setting.name in block.step_s]
    own = [block.step_s[setting.name] for block in beside]
    failure = run.failures.get(setting.name)
    return SettingResult(
        name=setting.name,
        changes=setting.changes,
        launches=len(own),
        step_s=statistics.median(own) if own else None,
        ratio=ratio_of_positive(own, [block.base_s for block in beside]),
        dropped=run.dropped.get(setting.name),
        failure=failure.detail if failure is not None else None,
        chance=chance,
    )


def _place(result: SettingResult) -> tuple[bool, float, float]:
    """Return the key by which the setting that lasted longest is the first one."""
    ratio = result.ratio.ratio if result.ratio is not None else math.inf
    return result.failure is not None, -(result.dropped or math.inf), ratio


def _best(run: SweepRun) -> str | None:
    """Return the last setting if it beat the suite's own in the last rung, or is not judged yet."""
    if len(run.remaining) != 1:
        return None
    (last,) = run.remaining
    if run.verdict is None or run.verdict.ratio is None or run.verdict.ratio >= 1:
        return None
    return last.name
