"""Probes of an environment with some changes of another, until the culprits are found."""

from __future__ import annotations

import contextlib
import enum
import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from ddp_perf.core.case import Case
from ddp_perf.core.launch import LaunchRequest
from ddp_perf.core.metric import CPU_TIME, STEP_TIME
from ddp_perf.core.verdict import DuelOutcome, PairedVerdict
from ddp_perf.duel.environments.factors import Factor, hybrid_case, make_hybrid, taken_along
from ddp_perf.duel.values import PreparedSide
from ddp_perf.errors import LaunchError
from ddp_perf.launch.launcher import Launcher
from ddp_perf.session.measure.experiment import Arm, Block, History, next_block, pairs_of
from ddp_perf.stats.pairs import PairedPlan, choose_yardstick, judge_pairs

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
_CALIBRATING, _PROBING = 0, 1  # phases
_EFFECTS = {
    DuelOutcome.SLOWER: ProbeEffect.SLOWER,
    DuelOutcome.EQUIVALENT: ProbeEffect.NONE,
    DuelOutcome.FASTER: ProbeEffect.NONE,
    DuelOutcome.UNDECIDED: ProbeEffect.UNRESOLVED,
}


class NotProbedError(Exception):
    """The launches so far do not decide a probe, of environment A with these factors each."""

    def __init__(self, base: Sequence[Factor], hybrid: Sequence[Factor]) -> None:
        super().__init__()
        self.base, self.hybrid = base, hybrid


class Probe(msgspec.Struct, frozen=True, kw_only=True):
    """A duel: environment A with ``known`` against the same with ``moved`` as well."""

    known: tuple[str, ...]  # names of factors
    moved: tuple[str, ...]
    effect: ProbeEffect
    verdict: PairedVerdict | None  # None: it does not launch
    failure: str | None = None  # of the hybrid's launch
    wall_s: float  # of its pairs


def arm_of(factors: Iterable[Factor]) -> str:
    """Return the name of environment A with these factors; "": it has none."""
    return " ".join(sorted(factor.name for factor in factors))


class Probes:
    """The probes that launches show. All of a search have one metric, chosen by launches of A."""

    def __init__(
        self, history: History, factors: Sequence[Factor], plan: PairedPlan, *, earlier: int
    ) -> None:
        self._history, self._factors, self._plan = history, factors, plan
        self._earlier = earlier  # launches of runs before this one

    @property
    def calibration(self) -> History:
        """The launches of A that choose between the wall time and the CPU time of a step."""
        return [launch for launch in self._history if launch.phase == _CALIBRATING]

    @property
    def missing_calibration(self) -> int:
        """The number of launches of A that are missing.

        A number of threads changes the CPU time of the same work, so with such a variable among
        the factors wall time decides.
        """
        if any("THREADS" in (factor.variable or "") for factor in self._factors):
            return 0
        return _CALIBRATION - len([one for one in self.calibration if one.failure is None])

    @property
    def metric(self) -> str:
        levels = [one.values for one in self.calibration if one.failure is None]
        if self.missing_calibration or not levels or not all(CPU_TIME.name in lv for lv in levels):
            return STEP_TIME.name
        wall, cpu = ([lv[name] for lv in levels] for name in (STEP_TIME.name, CPU_TIME.name))
        return choose_yardstick(wall, cpu).metric

    def of(self, known: Sequence[Factor], moved: Sequence[Factor]) -> Probe:
        """Return a probe. Raises NotProbedError if more pairs are needed."""
        both = taken_along([*known, *moved], self._factors)
        pairs = pairs_of(self._history, arm_of(known), arm_of(both))
        metric = self.metric
        logs = [math.log(new.values[metric] / old.values[metric]) for old, new in pairs]
        verdict = judge_pairs(logs, self._plan)
        is_open = verdict.outcome is DuelOutcome.UNDECIDED and len(logs) < self._plan.looks[-1]
        failure = self.failure(arm_of(both)) if is_open else None
        if failure is None and is_open:
            raise NotProbedError(known, both)
        return Probe(
            known=tuple(factor.name for factor in known),
            moved=tuple(factor.name for factor in both if factor not in known),
            effect=_EFFECTS[verdict.outcome] if failure is None else ProbeEffect.UNRESOLVED,
            verdict=verdict if failure is None else None,
            failure=failure,
            wall_s=sum(launch.wall_s for pair in pairs for launch in pair),
        )

    def failure(self, arm: str) -> str | None:
        """Return why an arm failed in this run: in an earlier one, the cause may be over."""
        return next(
            (
                launch.failure.detail
                for launch in self._history[self._earlier :]
                if launch.arm == arm and launch.failure is not None
            ),
            None,
        )


class Probing:
    """The policy of a search: the next pair of environment A with some factors and with more.

    Close it: it keeps the launchers of the newest pair. Raises LaunchError if A fails.
    """

    def __init__(
        self,
        side: PreparedSide,
        case: Case,
        factors: Sequence[Factor],
        *,
        plan: PairedPlan,
        open_launcher: Callable[[PreparedSide], Launcher],
        directory: Path,
        earlier: int,
    ) -> None:
        self._side, self._case, self._factors, self._plan = side, case, factors, plan
        self._open_launcher, self._directory, self._earlier = open_launcher, directory, earlier
        self._open: dict[str, Arm] = {}
        self._hybrids = 0

    def close(self) -> None:
        self._close_all_but()

    def next(self, history: History) -> Block | None:
        probes = Probes(history, self._factors, self._plan, earlier=self._earlier)
        if probes.missing_calibration > 0:
            self._check_base(probes, "")
            return Block(next_block(history), (self._arm(()),), _CALIBRATING)
        needed: list[NotProbedError] = []

        def probe(known: Sequence[Factor], moved: Sequence[Factor]) -> Probe:
            try:
                return probes.of(known, moved)
            except NotProbedError as error:
                needed.append(error)
                raise

        find_culprits(self._factors, probe)
        if not needed:
            return None
        sides = needed[0].base, needed[0].hybrid
        self._check_base(probes, arm_of(needed[0].base))
        self._close_all_but(*map(arm_of, sides))
        return Block(next_block(history), tuple(map(self._arm, sides)), _PROBING)

    def _check_base(self, probes: Probes, arm: str) -> None:
        """Raise LaunchError if A, with what is known to be slow, failed: nothing is beside it."""
        if (why := probes.failure(arm)) is not None:
            raise LaunchError(f"A: {self._case.id}: {why}")

    def _arm(self, factors: Sequence[Factor]) -> Arm:
        name = arm_of(factors)
        if name not in self._open:
            self._hybrids += 1
            side = make_hybrid(self._side, factors, self._directory / str(self._hybrids))
            case, paths = hybrid_case(self._case, side), (str(side.root),)
            request = LaunchRequest(case=case, round=0, import_paths=paths)
            self._open[name] = Arm(name, self._open_launcher(side), request)
        return self._open[name]

    def _close_all_but(self, *names: str) -> None:
        with contextlib.ExitStack() as stack:
            for name in self._open.keys() - set(names):
                stack.callback(self._open.pop(name).launcher.close)


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

    It is not complete if ``probe`` raises NotProbedError.
    """
    made: dict[frozenset[str], Probe] = {}
    every: list[Probe] = []
    culprits: list[EnvironmentCulprit] = []
    known: tuple[Factor, ...] = ()
    cleared = False

    def effect(chosen: Sequence[Factor]) -> ProbeEffect:
        both = taken_along([*known, *chosen], factors)
        key = frozenset(factor.name for factor in both)
        if key not in made:
            made[key] = probe(known, chosen)
            every.append(made[key])
        return made[key].effect

    try:
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
    except NotProbedError:
        complete = False
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
