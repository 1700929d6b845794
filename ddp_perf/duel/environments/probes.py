"""Probes of an environment with some changes of another, until the culprits are found."""

from __future__ import annotations

import contextlib
import enum
import itertools
import math
import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from ddp_perf.core.case import Case
from ddp_perf.core.launch import LaunchFailure, LaunchResult
from ddp_perf.core.metric import CPU_TIME, STEP_TIME
from ddp_perf.core.verdict import DuelOutcome, PairedVerdict
from ddp_perf.duel.environments.factors import Factor, hybrid_case, make_hybrid, taken_along
from ddp_perf.duel.open_sides import Turn, launch_turns
from ddp_perf.duel.values import PreparedSide
from ddp_perf.errors import LaunchError, SideError
from ddp_perf.launch.launcher import Launcher
from ddp_perf.stats.pairs import PairedPlan, choose_yardstick, judge_pairs
from ddp_perf.stats.summary import summarise
from ddp_perf.system.ledger import Ledger

# Delta debugging: the smallest set of changes that causes a failure.
#
# ``ddmin`` of Zeller & Hildebrandt, "Simplifying and Isolating Failure-Inducing Input", IEEE
# Transactions on Software Engineering 28 (2002). A single cause is found by halving; causes that
# act only together are found with the complements.


_Factor = TypeVar("_Factor")


class ProbeEffect(str, enum.Enum):
    """The effect of a set of changes."""

    SLOWER = "slower"
    NONE = "none"
    UNRESOLVED = "unresolved"  # it does not launch, or the pairs did not decide


def minimise(
    factors: Sequence[_Factor], effect: Callable[[tuple[_Factor, ...]], ProbeEffect]
) -> tuple[_Factor, ...]:
    """Return a smallest part of ``factors`` that is SLOWER: it is not without any one of them.

    All of ``factors`` together must be SLOWER, and none of them must not be. Raises whatever
    ``effect`` does.
    """
    kept, parts = tuple(factors), 2
    while len(kept) > 1:
        pieces = _pieces(kept, parts)
        rests = [tuple(one for one in kept if one not in piece) for piece in pieces]
        if (found := _first_slower(pieces, effect)) is not None:
            kept, parts = found, 2
        elif parts > 2 and (found := _first_slower(rests, effect)) is not None:
            kept, parts = found, parts - 1
        elif parts == len(kept):
            break
        else:
            parts = min(2 * parts, len(kept))
    return kept


def _first_slower(
    sets: Sequence[tuple[_Factor, ...]], effect: Callable[[tuple[_Factor, ...]], ProbeEffect]
) -> tuple[_Factor, ...] | None:
    return next((one for one in sets if effect(one) is ProbeEffect.SLOWER), None)


def _pieces(factors: tuple[_Factor, ...], parts: int) -> list[tuple[_Factor, ...]]:
    """Split into ``parts`` pieces of as equal a length as possible, none of them empty."""
    ends = [len(factors) * part // parts for part in range(parts + 1)]
    return [factors[begin:end] for begin, end in itertools.pairwise(ends)]


# Probes: duels of environment A, with what is known to be slow, against a hybrid of it.


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
    ) -> None:
        self.metric = STEP_TIME.name
        self._side, self._case, self._factors, self._plan = side, case, factors, plan
        self._open, self._directory = open_launcher, directory
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

    def probe(self, known: Sequence[Factor], moved: Sequence[Factor], *, until: float) -> Probe:
        """Return the effect of ``moved``.

        Raises OutOfTimeError once ``time.monotonic()`` is ``until``, and SideError if A fails.
        """
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
                if time.monotonic() >= until:
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


# The culprits: sets of changes that make environment A slower, each as small as possible.


_Probing = Callable[[Sequence[Factor], Sequence[Factor]], Probe]


class EnvironmentCulprit(msgspec.Struct, frozen=True, kw_only=True):
    """Factors that make the environment slower: one, or several that act only together.

    ``minimal`` is False if the budget ended the search: the cause is among the factors.
    """

    factors: tuple[str, ...]  # their labels
    along: tuple[str, ...]  # labels of those that they take along
    known: tuple[str, ...]  # labels of earlier culprits, which the environment already had
    verdict: PairedVerdict
    minimal: bool


class Search(msgspec.Struct, frozen=True, kw_only=True):
    """The culprits of a search, with its probes.

    ``cleared`` is True if the rest of the changes is not slower.
    """

    culprits: tuple[EnvironmentCulprit, ...]
    probes: tuple[Probe, ...]
    cleared: bool
    complete: bool  # False: the budget ended it


def expected_probes(factors: int) -> int:
    """Return how many probes find one culprit among ``factors``: two halves at each step."""
    return 2 * math.ceil(math.log2(max(factors, 1))) + 2


def find_culprits(factors: Sequence[Factor], probe: _Probing) -> Search:
    """Find every set of factors that makes the environment slower, until the rest is not.

    Probes that were made once are not made again.
    """
    made: dict[frozenset[str], Probe] = {}
    every: list[Probe] = []
    culprits: list[EnvironmentCulprit] = []
    known: tuple[Factor, ...] = ()
    cleared = complete = False

    def effect(chosen: Sequence[Factor]) -> ProbeEffect:
        both = taken_along([*known, *chosen], factors)
        key = frozenset(factor.name for factor in both)
        if key not in made:
            made[key] = probe(known, chosen)
            every.append(made[key])
        return made[key].effect

    with contextlib.suppress(OutOfTimeError):
        while rest := [factor for factor in factors if factor not in known]:
            if (of_all := effect(rest)) is not ProbeEffect.SLOWER:
                cleared = of_all is ProbeEffect.NONE
                break
            found = minimise(rest, effect)
            culprits.append(_culprit(found, known, factors, made, minimal=True))
            known = taken_along([*known, *found], factors)
            made.clear()
        else:
            cleared = True
        complete = True
    if not complete and any(one.effect is ProbeEffect.SLOWER for one in made.values()):
        smallest = min((p for p in made.values() if p.effect is ProbeEffect.SLOWER), key=_size)
        suspects = [factor for factor in factors if factor.name in smallest.moved]
        culprits.append(_culprit(suspects, known, factors, made, minimal=False))
    return Search(culprits=tuple(culprits), probes=tuple(every), cleared=cleared, complete=complete)


def _size(probe: Probe) -> int:
    return len(probe.moved)


def _culprit(
    found: Sequence[Factor],
    known: Sequence[Factor],
    factors: Sequence[Factor],
    made: dict[frozenset[str], Probe],
    *,
    minimal: bool,
) -> EnvironmentCulprit:
    both = taken_along([*known, *found], factors)
    verdict = made[frozenset(factor.name for factor in both)].verdict
    assert verdict is not None  # it is SLOWER
    return EnvironmentCulprit(
        factors=tuple(factor.label for factor in found),
        along=tuple(one.label for one in both if one not in known and one not in found),
        known=tuple(factor.label for factor in known),
        verdict=verdict,
        minimal=minimal,
    )


# The finished probes of a search between two environments.


def recall(
    log: Ledger[Probe],
    factors: Sequence[Factor],
    known: Sequence[Factor],
    moved: Sequence[Factor],
) -> Probe:
    """Return a finished probe. Raises OutOfTimeError if it was not made.

    A hybrid that failed in an earlier run is probed again, since the cause may be over.
    """
    names = {factor.name for factor in known}
    both = {factor.name for factor in taken_along([*known, *moved], factors)}
    for number, probe in enumerate(log.entries):
        is_it = set(probe.known) == names and {*probe.known, *probe.moved} == both
        if is_it and (probe.failure is None or number >= log.earlier):
            return probe
    raise OutOfTimeError
