"""Sequential halving: all settings in turn, and after each rung the slower half is dropped.

Karnin, Koren & Somekh, "Almost Optimal Exploration in Multi-Armed Bandits", ICML 2013; the same
rule as successive halving of Jamieson & Talwalkar, AISTATS 2016, with a rung's share of the time in
place of a number of pulls. In each block the suite's own setting and all that remain are launched
once, in random order, so that what slows the machine down for minutes slows all of them down.

The suite's own setting is never dropped. The last rung has one other setting, chosen before: its
launches judge it without the bias of having been chosen by them.
"""

from __future__ import annotations

import math
import random
import statistics
import time
from collections.abc import Callable

import msgspec

from ddp_perf.core.case import Case
from ddp_perf.core.duel import DuelOutcome, PairedVerdict
from ddp_perf.core.launch import LaunchFailure, LaunchResult
from ddp_perf.duel.launching import Turn, launch_turns
from ddp_perf.duel.sweep.servers import EnvironmentLauncher
from ddp_perf.duel.sweep.settings import Setting, Settings
from ddp_perf.stats.duel.pair_plan import PairedPlan, plan_pair_looks
from ddp_perf.stats.pairs import judge_pairs
from ddp_perf.stats.summary import step_level

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
