"""Why a case is slower, by the launches of both sides."""

from __future__ import annotations

from ddp_perf.core.launch import Collective
from ddp_perf.core.verdict import DuelOutcome
from ddp_perf.duel.case_run import explain_slower, structure_difference
from ddp_perf.duel.values import CaseDuel, Pair, SideCase
from tests.builders import make_case, make_environment, make_launch, make_probe, make_structure

CASE = make_case()
A_S, B_S = 0.0101, 0.0105


def make_slower(pairs=6, **b):
    """A case whose backward takes 0.4 ms longer on side B; launches differ by 1 %."""
    launched = []
    for block in range(pairs):
        noise = 1 + 0.01 * (-1) ** block
        probes = make_probe(backward=0.004 * noise), make_probe(backward=0.0044 * noise)
        launches = [
            make_launch(CASE, block, step_s=step_s * noise, probe=probe, **changes)
            for step_s, probe, changes in zip((A_S, B_S), probes, ({}, b), strict=True)
        ]
        launched.append(Pair(case_id=CASE.id, block=block, first="A", a=launches[0], b=launches[1]))
    return CaseDuel(cases=SideCase(a=CASE, b=CASE), pairs=tuple(launched))


def test_the_term_that_grew_is_the_cause():
    found = explain_slower(make_slower(), make_environment(), make_environment())

    assert found.causes[0].kind == "compute"
    (backward,) = [term for term in found.terms if term.name == "backward"]
    assert backward.is_certain  # against a stored session it would not be: that has a noise too
    assert 0.0003 < backward.change < 0.0005


def test_the_machine_is_no_cause_since_both_sides_had_the_same_one():
    case = make_slower(control_s=(0.0022,) * 8)

    found = explain_slower(case, make_environment(), make_environment())

    assert "machine" not in [cause.kind for cause in found.causes]


def test_versions_that_differ_are_part_of_the_evidence():
    found = explain_slower(
        make_slower(), make_environment(torch="2.11.0"), make_environment(torch="2.13.0")
    )

    assert any("torch 2.11.0 → 2.13.0" in line for line in found.causes[0].evidence)


def test_launches_without_terms_explain_nothing():
    case = make_slower(pairs=1)

    assert explain_slower(case, make_environment(), make_environment()) is None
    assert case.outcome is DuelOutcome.UNDECIDED


def test_structures_that_differ_are_named():
    more = Collective(kind="broadcast", dtype="float32", bytes=8)
    structure = make_structure(collectives=(*make_structure().collectives, more))

    assert structure_difference(make_slower()) is None
    assert structure_difference(make_slower(structure=structure)) == (
        "1 broadcast of 8 bytes (float32) more a step"
    )


def test_a_structure_that_was_not_counted_is_no_equal_one():
    case = make_slower(pairs=1, structure=None, missing={"structure": "OutOfMemoryError: no"})

    assert structure_difference(case) == (
        "side B has none in 1 of 1 launches: rank 0: OutOfMemoryError: no"
    )
