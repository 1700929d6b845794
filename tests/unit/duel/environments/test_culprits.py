"""Every culprit is found, with a played oracle in the place of duels."""

from __future__ import annotations

import contextlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddp_perf.core.verdict import DuelOutcome
from ddp_perf.duel.environments.factors import Factor, taken_along
from ddp_perf.duel.environments.probes import (
    OutOfTimeError,
    Probe,
    ProbeEffect,
    find_culprits,
    recall,
)
from ddp_perf.system.ledger import Ledger
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
            raise OutOfTimeError
        self.asked += 1
        before = {factor.name for factor in known}
        both = {factor.name for factor in taken_along([*known, *moved], self.factors)}
        slower = any(cause <= both and not cause <= before for cause in self.causes)
        verdict = make_verdict(DuelOutcome.SLOWER if slower else DuelOutcome.EQUIVALENT)
        return Probe(
            known=tuple(sorted(before)),
            moved=tuple(sorted(both - before)),
            effect=ProbeEffect.SLOWER if slower else ProbeEffect.NONE,
            metric="step_time",
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


def test_a_later_run_goes_on_from_the_probes_that_were_finished(tmp_path):
    factors = make_factors(*"abcdefgh")

    def finish(oracle):
        log = Ledger.of_question(tmp_path, Probe, {"good": "x"}, {})

        def probe(known, moved):
            try:
                return recall(log, factors, known, moved)
            except OutOfTimeError:
                log.append(oracle(known, moved))
                return log.entries[-1]

        with contextlib.closing(log):
            return find_culprits(factors, probe)

    whole = Oracle(factors, "b", "fg")
    expected = find_culprits(factors, whole)
    assert not finish(Oracle(factors, "b", "fg", most=3)).complete
    (path,) = tmp_path.iterdir()
    with path.open("ab") as file:
        file.write(b'{"known": [')  # killed while it wrote
    rest = Oracle(factors, "b", "fg")

    assert finish(rest) == expected
    assert rest.asked == whole.asked - 3


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


def test_a_hybrid_that_failed_in_an_earlier_run_is_probed_again(tmp_path):
    factors = make_factors(*"ab")
    failed = msgspec.structs.replace(
        Oracle(factors, "b")((), factors), effect=ProbeEffect.UNRESOLVED, failure="killed"
    )
    with contextlib.closing(Ledger.of_question(tmp_path, Probe, {"good": "x"}, {})) as log:
        log.append(failed)
        assert recall(log, factors, (), factors) == failed  # not twice in one run

    with (
        contextlib.closing(Ledger.of_question(tmp_path, Probe, {"good": "x"}, {})) as log,
        pytest.raises(OutOfTimeError),
    ):
        recall(log, factors, (), factors)
