"""Every culprit is found, with a played oracle in the place of duels."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddp_perf.core.verdict import DuelOutcome
from ddp_perf.duel.environments.factors import Factor, taken_along
from ddp_perf.duel.environments.probes import (
    NotProbedError,
    Probe,
    ProbeEffect,
    Probes,
    find_culprits,
)
from ddp_perf.stats.pairs import PairedPlan
from tests.builders import make_logged
from tests.unit.duel.environments.environments import make_verdict


def make_factors(*names, **takes):
    return [Factor(name=name, label=f"{name} 1 → 2", takes=takes.get(name, ())) for name in names]


class Oracle:
    """Environment A with factors is slower by a cause once it has all of its factors."""

    def __init__(self, factors, *causes, most=1000):
        self.factors, self.causes, self.most = factors, [set(one) for one in causes], most
        self.asked = 0

    def __call__(self, known, moved):
        if self.asked == self.most:
            raise NotProbedError((), ())
        self.asked += 1
        before = {factor.name for factor in known}
        both = {factor.name for factor in taken_along([*known, *moved], self.factors)}
        slower = any(cause <= both and not cause <= before for cause in self.causes)
        verdict = make_verdict(DuelOutcome.SLOWER if slower else DuelOutcome.EQUIVALENT)
        return Probe(
            known=tuple(sorted(before)),
            moved=tuple(sorted(both - before)),
            effect=ProbeEffect.SLOWER if slower else ProbeEffect.NONE,
            verdict=verdict,
            wall_s=1.0,
        )


def blamed(search):
    return [set(culprit.factors) for culprit in search.culprits]


def test_two_culprits_are_both_named_and_the_rest_is_cleared():
    factors = make_factors(*"abcdefgh")

    search = find_culprits(factors, Oracle(factors, "b", "fg"))

    assert blamed(search) == [{"b 1 → 2"}, {"f 1 → 2", "g 1 → 2"}]
    assert search.culprits[1].known == ("b 1 → 2",)
    assert search.cleared
    assert search.complete


def test_what_a_culprit_takes_along_is_named_beside_it():
    factors = make_factors(*"abcd", c=("a",))

    search = find_culprits(factors, Oracle(factors, "ac"))

    assert blamed(search) == [{"c 1 → 2"}]
    assert search.culprits[0].along == ("a 1 → 2",)


def test_an_environment_that_is_not_slower_has_no_culprit():
    search = find_culprits(make_factors(*"abc"), Oracle(make_factors(*"abc")))

    assert search.culprits == ()
    assert search.cleared
    assert len(search.probes) == 1


def test_a_budget_that_ends_leaves_the_smallest_set_that_is_slower():
    factors = make_factors(*"abcdefgh")

    search = find_culprits(factors, Oracle(factors, "b", most=3))

    assert blamed(search) == [{"a 1 → 2", "b 1 → 2"}]
    assert not search.culprits[0].minimal
    assert not search.complete


@given(st.data())
def test_causes_that_do_not_overlap_are_all_found(data):
    names = "abcdefghij"[: data.draw(st.integers(1, 10))]
    factors = make_factors(*names)
    order = data.draw(st.permutations(names))
    sizes = data.draw(st.lists(st.integers(1, 3), max_size=3))
    causes, start = [], 0
    for size in sizes:
        causes.append(set(order[start : start + size]))
        start += size
    causes = [cause for cause in causes if cause]

    search = find_culprits(factors, Oracle(factors, *causes))

    found = [frozenset(label[0] for label in culprit.factors) for culprit in search.culprits]
    assert set(found) == set(map(frozenset, causes))


@pytest.mark.parametrize("most", range(1, 8))
def test_a_search_that_ends_never_blames_the_innocent(most):
    factors = make_factors(*"abcdefgh")

    search = find_culprits(factors, Oracle(factors, "b", most=most))

    assert all("b 1 → 2" in culprit.factors for culprit in search.culprits)


def test_a_hybrid_that_failed_in_an_earlier_run_is_probed_again():
    factors = make_factors(*"ab")
    history = [make_logged(""), make_logged("a b", failure="killed")]
    plan = PairedPlan(alpha=0.01, tolerance=0.05, looks=(6,))

    found = Probes(history, factors, plan, earlier=0).of((), factors)

    assert (found.effect, found.failure) == (ProbeEffect.UNRESOLVED, "killed")
    with pytest.raises(NotProbedError):
        Probes(history, factors, plan, earlier=2).of((), factors)
