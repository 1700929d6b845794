"""A search between two environments, as a person reads it."""

from __future__ import annotations

import msgspec
import pytest

from ddp_perf.duel.environments.probes import ProbeEffect, find_culprits
from ddp_perf.duel.environments.run import EnvironmentSearch
from ddp_perf.duel.environments.text import environments_text
from tests.unit.duel.environments.test_culprits import Oracle, make_factors


def text_of(search, fixed=()):
    result = EnvironmentSearch(
        good="python:/a/bin/python",
        bad="python:/b/bin/python",
        case_id="mlp-ddp-fp32-ws2-b64",
        metric="step_time",
        tolerance=0.05,
        alpha=0.005,
        factors=tuple(f"{name} 1 → 2" for name in "abcd"),
        fixed=fixed,
        search=search,
    )
    return environments_text(result, 100)


def searched(*causes, most=1000, **takes):
    factors = make_factors(*"abcd", **takes)
    return find_culprits(factors, Oracle(factors, *causes, most=most))


@pytest.mark.parametrize(
    ("search", "said"),
    [
        (searched("b"), "To blame: b 1 → 2: +10.0 % (+8.0 % … +12.0 %)."),
        (searched("bd"), "To blame: b 1 → 2 and d 1 → 2 together (less is not slower): +10.0 %"),
        (searched("cd", d=("c",)), "To blame: d 1 → 2, with c 1 → 2, without which it does not"),
        (searched("a", "c"), "To blame: c 1 → 2, after a 1 → 2: +10.0 %"),
        (searched("b"), "The rest has no effect above 5 %."),
        (
            searched("b"),
            "at least 97.5 % (5 probes, each false with at most 0.5 %)",
        ),
        (searched("b", most=2), "The cause is among: a 1 → 2; b 1 → 2 (+10.0 %)."),
        (searched("b", most=2), "it goes on from these probes"),
        (searched(), "Nothing of B that can be moved to A makes it slower."),
    ],
)
def test_the_conclusion_names_the_culprits(search, said):
    assert said in " ".join(text_of(search).split())


def test_what_cannot_be_moved_is_named_if_nothing_else_is_to_blame():
    text = " ".join(text_of(searched(), fixed=("Python 3.11.1 → 3.11.2",)).split())

    assert "what cannot be moved may be: Python 3.11.1 → 3.11.2" in text


def test_each_probe_has_a_row():
    lines = text_of(searched("b")).splitlines()

    assert any(line.startswith("everything") and "slower" in line for line in lines)
    assert any(line.startswith("the rest") and "none" in line for line in lines)


def test_an_undecided_comparison_is_no_acquittal():
    factors = make_factors("a")
    oracle = Oracle(factors)

    def undecided(known, moved):
        return msgspec.structs.replace(oracle(known, moved), effect=ProbeEffect.UNRESOLVED)

    search = find_culprits(factors, undecided)

    assert not search.cleared
    assert "Undecided: A with everything of B gives no answer" in text_of(search)
