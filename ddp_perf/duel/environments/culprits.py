"""The culprits: sets of changes that make environment A slower, each as small as possible."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence

import msgspec

from ddp_perf.core.duel import PairedVerdict
from ddp_perf.duel.environments.delta import ProbeEffect, minimise
from ddp_perf.duel.environments.factors import Factor, taken_along
from ddp_perf.duel.environments.probes import OutOfTimeError, Probe

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
