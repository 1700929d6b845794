"""Probes: duels of environment A, with what is known to be slow, against a hybrid of it."""

from __future__ import annotations

import contextlib
import math
import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from ddp_perf.core.case import Case
from ddp_perf.core.duel import DuelOutcome, PairedVerdict
from ddp_perf.core.launch import LaunchFailure, LaunchResult
from ddp_perf.core.metric import CPU_TIME, STEP_TIME
from ddp_perf.duel.environments.delta import ProbeEffect
from ddp_perf.duel.environments.factors import Factor, taken_along
from ddp_perf.duel.environments.hybrid import hybrid_case, make_hybrid
from ddp_perf.duel.launching import Turn, launch_turns
from ddp_perf.duel.values import PreparedSide
from ddp_perf.errors import LaunchError, SideError
from ddp_perf.launch.launcher import Launcher
from ddp_perf.stats.duel.pair_plan import PairedPlan
from ddp_perf.stats.duel.yardstick import choose_yardstick
from ddp_perf.stats.pairs import judge_pairs
from ddp_perf.stats.summary import summarise

_CALIBRATION = 6  # launches of A that choose between wall time and CPU time
_EFFECTS = {
    DuelOutcome.SLOWER: ProbeEffect.SLOWER,
    DuelOutcome.EQUIVALENT: ProbeEffect.NONE,
    DuelOutcome.FASTER: ProbeEffect.NONE,
    DuelOutcome.UNDECIDED: ProbeEffect.UNRESOLVED,
}


class OutOfTimeError(Exception):
    """The budget is over. Probes that were finished are in the log."""


class Probe(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A finished duel: environment A with ``known`` against the same with ``moved`` as well."""

    known: tuple[str, ...]  # names of factors
    moved: tuple[str, ...]
    effect: ProbeEffect
    metric: str  # that decided
    verdict: PairedVerdict | None  # None: it does not launch
    failure: str | None = None  # of the hybrid's launch
    wall_s: float


class Prober:
    """Makes probes, one after the other. Close it: it keeps the launcher of A between them."""

    def __init__(
        self,
        side: PreparedSide,
        case: Case,
        factors: Sequence[Factor],
        *,
        plan: PairedPlan,
        open_launcher: Callable[[PreparedSide], Launcher],
        directory: Path,
        until: float,
    ) -> None:
        self.metric = STEP_TIME.name
        self._side, self._case, self._factors, self._plan = side, case, factors, plan
        self._open, self._directory, self._until = open_launcher, directory, until
        self._order = random.Random()
        self._hybrids = 0
        self._base = contextlib.ExitStack()  # closes the launcher of A with what is known
        self._base_turn: tuple[tuple[Factor, ...], Turn] | None = None

    def close(self) -> None:
        self._base_turn = None
        self._base.close()

    def calibrate(self) -> None:
        """Choose between the wall time and the CPU time of a step by launches of A.

        A number of threads changes the CPU time of the same work, so with such a variable among
        the factors wall time decides.
        """
        if any("THREADS" in (factor.variable or "") for factor in self._factors):
            return
        levels = []
        for number in range(_CALIBRATION):
            (outcome,) = launch_turns([self._known(())], block=number, order=self._order)
            if isinstance(outcome, LaunchFailure):
                raise SideError(f"A: {self._case.id}: {outcome.detail}")
            levels.append(self._values(outcome))
        if all(CPU_TIME.name in level for level in levels):
            wall, cpu = ([lv[name] for lv in levels] for name in (STEP_TIME.name, CPU_TIME.name))
            self.metric = choose_yardstick(wall, cpu).metric

    def probe(self, known: Sequence[Factor], moved: Sequence[Factor]) -> Probe:
        """Return the effect of ``moved``. Raises OutOfTimeError, and SideError if A fails."""
        began = time.monotonic()
        both = taken_along([*known, *moved], self._factors)
        logs: list[float] = []
        verdict, failure = None, None
        with contextlib.ExitStack() as stack:
            base = self._known(tuple(known))
            try:
                hybrid = self._turn(both, stack)
                # The runtime is read here, so that a hybrid that cannot import torch fails now.
                hybrid.launcher.runtime(hybrid.case)
            except LaunchError as error:
                failure = str(error)
            while failure is None and (verdict is None or not _is_decided(verdict, self._plan)):
                if time.monotonic() >= self._until:
                    raise OutOfTimeError
                outcomes = launch_turns([base, hybrid], block=len(logs), order=self._order)
                failure = self._paired(outcomes, logs)
                verdict = judge_pairs(logs, self._plan) if failure is None else None
                if len(logs) in self._plan.looks:
                    # The next pairs are forks of other servers: forks of one share its addresses,
                    # which may make a side a little slower each time.
                    base.launcher.close()
                    hybrid.launcher.close()
        return Probe(
            known=tuple(factor.name for factor in known),
            moved=tuple(factor.name for factor in both if factor not in known),
            effect=ProbeEffect.UNRESOLVED if verdict is None else _EFFECTS[verdict.outcome],
            metric=self.metric,
            verdict=verdict,
            failure=failure,
            wall_s=time.monotonic() - began,
        )

    def _paired(
        self, outcomes: Sequence[LaunchResult | LaunchFailure], logs: list[float]
    ) -> str | None:
        """Add the log ratio of a pair, or return why the hybrid failed."""
        base, hybrid = outcomes
        if isinstance(base, LaunchFailure):
            raise SideError(f"A: {self._case.id}: {base.detail}")
        if isinstance(hybrid, LaunchFailure):
            return hybrid.detail
        logs.append(math.log(self._values(hybrid)[self.metric] / self._values(base)[self.metric]))
        return None

    def _values(self, launch: LaunchResult) -> dict[str, float]:
        samples = self._case.samples_per_step
        return summarise(launch, samples_per_step=samples, single=None).values

    def _known(self, factors: tuple[Factor, ...]) -> Turn:
        """Return A with what is known, which is opened once for all probes beside it."""
        if self._base_turn is None or self._base_turn[0] != factors:
            self.close()
            self._base_turn = factors, self._turn(factors, self._base)
        return self._base_turn[1]

    def _turn(self, factors: Sequence[Factor], stack: contextlib.ExitStack) -> Turn:
        """Open side A with some factors, until ``stack`` closes."""
        self._hybrids += 1
        side = make_hybrid(self._side, factors, self._directory / str(self._hybrids))
        launcher = stack.enter_context(contextlib.closing(self._open(side)))
        return Turn(launcher, hybrid_case(self._case, side), (str(side.root),))


def _is_decided(verdict: PairedVerdict, plan: PairedPlan) -> bool:
    return verdict.outcome is not DuelOutcome.UNDECIDED or verdict.pairs >= plan.looks[-1]
