"""Sequential halving: after each rung the slower half of the settings is dropped; the result."""

from __future__ import annotations

import itertools
import math
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import msgspec

from ddp_perf.core.case import Case
from ddp_perf.core.environment import Environment
from ddp_perf.core.launch import LaunchFailure, LaunchRequest
from ddp_perf.core.metric import STEP_TIME
from ddp_perf.core.verdict import DuelOutcome, PairedVerdict
from ddp_perf.duel.inventory import digest_of_sources
from ddp_perf.duel.sweep.settings import LeftOut, Setting, Settings
from ddp_perf.launch.launcher import Launcher, Runtime
from ddp_perf.session.measure.experiment import (
    Arm,
    Block,
    Experiment,
    History,
    Log,
    LoggedLaunch,
    blocks_of,
    next_block,
    open_log,
    time_of,
)
from ddp_perf.stats.interval import PairedRatio, ratio_of_positive
from ddp_perf.stats.pairs import PairedPlan, best_chances, judge_pairs, plan_pair_looks
from ddp_perf.system.ledger import Conditions, Entries

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
_OWN = ""  # the arm of the suite's own setting; the others are named as they are
_FROM_A_SERVER = 6  # launches of a setting


def open_sweep_log(directory: Path, settings: Settings, environment: Environment) -> Log:
    """Open the log of a sweep of the tree here. Close it. Raises ResultsError."""
    question = {
        "case": settings.base.id,
        "settings": " ".join(one.name for one in settings.tried),
    }
    conditions: Conditions = {
        **environment.conditions(),
        **settings.base.work(),
        "sources of the project": digest_of_sources(Path.cwd()),
        "ddp_perf": version("ddp-perf"),
    }
    return open_log(directory, question, conditions)


class SweepBlock(msgspec.Struct, frozen=True, kw_only=True):
    """One launch of each remaining setting: the level of a step, in seconds, by name."""

    rung: int  # the first one is 1
    base_s: float
    step_s: dict[str, float]


class SweepState:
    """The finding of a sweep's launches: the levels of its settings, and which of them remain.

    A setting that failed is not launched again. The suite's own is, in a later run than that of its
    failure: ``earlier`` launches are of runs before this one.
    """

    def __init__(self, settings: Settings, history: History, *, earlier: int = 0) -> None:
        self.settings = settings
        self.blocks = list(self._blocks(history))
        self.failures: dict[str, LaunchFailure] = {}
        self._failed_in: dict[str, int] = {}  # rung, by name
        for number, one in enumerate(history):
            if one.failure is not None and (one.arm != _OWN or number >= earlier):
                self.failures[one.arm], self._failed_in[one.arm] = one.failure, one.phase
        self.dropped: dict[str, int] = {}  # rung at whose end a setting was dropped, by name
        for rung in range(1, max((launch.phase for launch in history), default=1)):
            self.halve(rung)

    @property
    def remaining(self) -> list[Setting]:
        gone = self.dropped.keys() | self.failures.keys()
        return [setting for setting in self.settings.tried if setting.name not in gone]

    @property
    def rungs(self) -> int:
        """The number of rungs: the last one has one setting beside the suite's own."""
        return 1 + math.ceil(math.log2(len(self.settings.tried)))

    def halve(self, rung: int) -> None:
        """Drop the slower half by the mean of all launches up to this rung."""
        failed = {name for name, phase in self._failed_in.items() if phase <= rung}
        left = [one for one in self.settings.tried if one.name not in {*failed, *self.dropped}]
        order = sorted(left, key=lambda setting: self._mean(setting.name, rung))
        for setting in order[math.ceil(len(order) / 2) :]:
            self.dropped[setting.name] = rung

    def of(self, rung: int) -> list[SweepBlock]:
        return [block for block in self.blocks if block.rung == rung]

    def logs(self, rung: int) -> list[float]:
        """Return the logs of the last setting ÷ the suite's own, of the blocks of a rung."""
        (setting,) = self.remaining
        return _logs(setting.name, self.of(rung))

    def _mean(self, name: str, rung: int) -> float:
        logs = _logs(name, (block for block in self.blocks if block.rung <= rung))
        return statistics.fmean(logs) if logs else math.inf

    def _blocks(self, history: History) -> Iterator[SweepBlock]:
        cases = {_OWN: self.settings.base} | {one.name: one.case for one in self.settings.tried}
        samples = self.settings.base.samples_per_step
        for block in blocks_of(history):
            if _OWN in block:  # the launches of another one have nothing to compare with
                levels = {
                    name: one.values[STEP_TIME.name] * samples / cases[name].samples_per_step
                    for name, one in block.items()
                }
                base_s = levels.pop(_OWN)
                yield SweepBlock(rung=block[_OWN].phase, base_s=base_s, step_s=levels)


def _logs(name: str, blocks: Iterable[SweepBlock]) -> list[float]:
    """Return the log of a setting ÷ the suite's own, of each block that has it."""
    return [math.log(one.step_s[name] / one.base_s) for one in blocks if name in one.step_s]


class SweepRun:
    """A sweep, as a policy. What was measured stays readable if it is interrupted."""

    def __init__(
        self,
        settings: Settings,
        launcher: Launcher,
        log: Entries[LoggedLaunch],
        *,
        budget_s: float,
        import_paths: tuple[str, ...] = (),
        seed: int | None = None,
    ) -> None:
        """Begin its time. ``seed`` is that of the order of launches."""
        self.log, self.settings, self.budget_s = log, settings, budget_s
        self.verdict: PairedVerdict | None = None  # on the last rung; None: it was not reached
        self.complete = False
        self._launcher, self._import_paths, self._seed = launcher, import_paths, seed
        self._until = time.monotonic() + max(0.0, budget_s - time_of(log.entries))
        self._rung, self._rung_until = 0, 0.0
        self._is_last = False  # it judges the setting that is left

    @property
    def state(self) -> SweepState:
        return SweepState(self.settings, self.log.entries, earlier=self.log.earlier)

    def run(self, *, on_launch: Callable[[int], None]) -> LaunchFailure | None:
        """Run launches until one setting is judged, or the time is over.

        Return the failure of the suite's own setting, which ends the sweep, or None.
        ``on_launch`` receives the number of launches that are done. Raises ResultsError if the log
        cannot be written.
        """
        experiment = Experiment(
            self.log,
            seed=self._seed,
            launches_a_server=_FROM_A_SERVER,
            may_not_start=True,
        )
        experiment.run(self, on_launch=lambda _: on_launch(len(self.log.entries)))
        return self.state.failures.get(_OWN)

    def next(self, history: History) -> Block | None:
        """Return the next block: of this rung if it has time, or else of the next one."""
        state = self.state
        if _OWN in state.failures:
            return None
        if self._rung == 0:
            self._begin(max((launch.phase for launch in history), default=1), state)
        while not self._goes_on(state):
            if self._is_last or not state.remaining:
                self.complete = True
                return None
            if time.monotonic() >= self._until:
                return None
            state.halve(self._rung)
            self._begin(self._rung + 1, state)
        arms = [(_OWN, self.settings.base), *((one.name, one.case) for one in state.remaining)]
        return Block(next_block(history), tuple(itertools.starmap(self._arm, arms)), self._rung)

    def _arm(self, name: str, case: Case) -> Arm:
        request = LaunchRequest(case=case, round=0, import_paths=self._import_paths)
        return Arm(name, self._launcher, request)

    def _begin(self, rung: int, state: SweepState) -> None:
        """Begin a rung: those that are left share the time that is left."""
        left_s = max(0.0, self._until - time.monotonic())
        self._rung, self._rung_until = rung, time.monotonic() + left_s / (state.rungs + 1 - rung)
        self._is_last = len(state.remaining) == 1

    def _goes_on(self, state: SweepState) -> bool:
        """Return True if the rung needs another block: at least one, and then while time is left.

        The last rung ends as soon as it is decided.
        """
        done = state.of(self._rung)
        if not state.remaining:
            return False
        cost_s = (1 + len(state.remaining)) * (self._launch_s() or 0.0)
        ended = bool(done) and time.monotonic() + cost_s > self._rung_until
        if done and self._is_last:
            plan, logs = self._plan(state), state.logs(self._rung)
            ended = ended or len(done) >= plan.looks[-1]
            verdict = judge_pairs(logs, plan, ended=ended)
            if ended or verdict.outcome is not DuelOutcome.UNDECIDED:
                self.verdict, ended = verdict, True
        return not ended

    def _plan(self, state: SweepState) -> PairedPlan:
        """Plan the last rung by its share of the time, and the launches of those before it."""
        share_s = self.budget_s / state.rungs
        launch_s = self._launch_s(before=self._rung) or share_s / 20
        most = max(2, int(share_s / (2 * launch_s)))
        return PairedPlan(alpha=ALPHA, tolerance=WORTH, looks=plan_pair_looks(most))

    def _launch_s(self, before: int | None = None) -> float | None:
        """Return the median seconds of a launch, of the rungs before one or of all."""
        seconds = [
            launch.wall_s
            for launch in self.log.entries
            if launch.failure is None and (before is None or launch.phase < before)
        ]
        return statistics.median(seconds) if seconds else None


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


def sweep_result(run: SweepRun, *, began: str, wall_s: float, runtime: Runtime) -> SweepResult:
    """Return what the launches of a sweep show."""
    base, state = run.settings.base, run.state
    blocks = state.blocks
    base_chance, chances = _chances(blocks)
    results = [_result(state, one, chances.get(one.name)) for one in run.settings.tried]
    return SweepResult(
        case_id=base.id,
        suite=base.suite,
        began=began,
        wall_s=wall_s,
        budget_s=run.budget_s,
        runtime=runtime,
        rungs=state.rungs,
        base_step_s=statistics.median(b.base_s for b in blocks) if blocks else None,
        base_launches=len(blocks),
        base_chance=base_chance,
        settings=tuple(sorted(results, key=_place)),
        left_out=run.settings.left_out,
        best=_best(state, run.verdict),
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


def _result(state: SweepState, setting: Setting, chance: float | None) -> SettingResult:
    beside = [block for block in state.blocks if setting.name in block.step_s]
    own = [block.step_s[setting.name] for block in beside]
    failure = state.failures.get(setting.name)
    return SettingResult(
        name=setting.name,
        changes=setting.changes,
        launches=len(own),
        step_s=statistics.median(own) if own else None,
        ratio=ratio_of_positive(own, [block.base_s for block in beside]),
        dropped=state.dropped.get(setting.name),
        failure=failure.detail if failure is not None else None,
        chance=chance,
    )


def _place(result: SettingResult) -> tuple[bool, float, float]:
    """Return the key by which the setting that lasted longest is the first one."""
    ratio = result.ratio.ratio if result.ratio is not None else math.inf
    return result.failure is not None, -(result.dropped or math.inf), ratio


def _best(state: SweepState, verdict: PairedVerdict | None) -> str | None:
    """Return the last setting if it beat the suite's own in the last rung, or is not judged yet."""
    if len(state.remaining) != 1 or verdict is None or verdict.ratio is None or verdict.ratio >= 1:
        return None
    return state.remaining[0].name
