"""A step that does other work is detected exactly, and reported with both figures."""

from __future__ import annotations

import msgspec
import pytest

from ddp_perf.core.launch import PEER_LEFT, Collective
from ddp_perf.core.verdict import Outcome, Verdict
from ddp_perf.session.gate.exact import (
    compare_structure,
    compared_flops,
    counted_flops,
    judge_structure,
    structure_changes,
    with_flops,
    with_missing,
)
from tests.builders import (
    make_case,
    make_case_baseline,
    make_cases,
    make_launch,
    make_rank_result,
    make_scripts,
    make_stored_structure,
    make_structure,
)

SMALL = Collective(kind="all_reduce", dtype="float32", bytes=1024)
LARGE = Collective(kind="all_reduce", dtype="float32", bytes=4096)
HALF = Collective(kind="all_reduce", dtype="float16", bytes=1024)


def test_the_same_structure_has_no_changes():
    assert structure_changes(make_structure(), make_structure()) == []


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        pytest.param(
            {"collectives": (LARGE,)},
            {"collectives": (LARGE, SMALL)},
            ["1 all_reduce of 1,024 bytes (float32) more a step"],
            id="one collective more",
        ),
        pytest.param(
            {"collectives": (LARGE, SMALL, SMALL)},
            {"collectives": (LARGE,)},
            ["2 all_reduce of 1,024 bytes (float32) fewer a step"],
            id="two fewer",
        ),
        pytest.param(
            {"collectives": (SMALL,)},
            {"collectives": (HALF,)},
            [
                "1 all_reduce of 1,024 bytes (float16) more a step",
                "1 all_reduce of 1,024 bytes (float32) fewer a step",
            ],
            id="another type",
        ),
        pytest.param(
            {"collectives": (LARGE, SMALL)},
            {"collectives": (SMALL, LARGE)},
            ["the same collectives in another order"],
            id="another order",
        ),
        pytest.param(
            {"buckets": (4096, 1024, 1024, 4096)},
            {"buckets": (5120,)},
            ["buckets 4,096 + 2 × 1,024 + 4,096 → 5,120 bytes"],
            id="buckets",
        ),
        pytest.param(
            {"parameters": 1000, "gradient_bytes": 4000},
            {"parameters": 1001, "gradient_bytes": 4004},
            ["parameters 1,000 → 1,001", "gradient bytes 4,000 → 4,004"],
            id="parameters",
        ),
    ],
)
def test_each_change_is_named_with_both_figures(old, new, expected):
    assert structure_changes(make_structure(**old), make_structure(**new)) == expected


def test_every_launch_must_have_the_stored_structure():
    case = make_case()
    odd = make_structure(collectives=(LARGE, SMALL))
    same = make_structure(collectives=(LARGE,))
    launches = [make_launch(case, structure=same), make_launch(case, 1, structure=odd)]

    verdict = compare_structure(launches, same)

    assert verdict.outcome is Outcome.REGRESSION
    assert "1 all_reduce of 1,024 bytes (float32) more a step" in verdict.reason
    assert compare_structure(launches[:1], same).outcome is Outcome.PASS


def with_flops_of(
    flops, *, stored=10**9, torch="2.13.1", reason=Outcome.PASS, one_batch=True, **changes
):
    case = make_case(**changes)
    known = make_case_baseline(case, flops=stored, flops_torch="2.13.0+cu128")
    verdict = Verdict(outcome=reason, reason="1 collective a step")
    launches = [make_launch(case, i, flops=one, one_batch=one_batch) for i, one in enumerate(flops)]
    return with_flops(verdict, launches, case, known, torch)


@pytest.mark.parametrize(
    ("flops", "amount"), [(5 * 10**8, "less"), (2 * 10**9, "more")], ids=["fewer", "more"]
)
def test_other_flops_are_a_regression_also_if_they_are_fewer(flops, amount):
    verdict = with_flops_of([flops, flops])

    assert verdict.outcome is Outcome.REGRESSION
    assert verdict.reason == (
        f"the step computes {amount} than the baseline's;"
        f" FLOPs of a step: 1,000,000,000 → {flops:,}"
    )


@pytest.mark.parametrize(
    ("counts", "changes", "expected"),
    [
        pytest.param([2, 2], {}, (1, 2), id="more"),
        pytest.param([2, 3], {}, None, id="launches differ"),
        pytest.param([2, 2], {"one_batch": False}, None, id="steps may differ"),
    ],
)
def test_the_flops_are_kept_as_figures_where_they_compare(counts, changes, expected):
    case = make_case()
    known = make_case_baseline(case, flops=1, flops_torch="2.13.0")
    launches = [make_launch(case, i, flops=one, **changes) for i, one in enumerate(counts)]
    assert compared_flops(launches, case, known, "2.13.0") == expected
    assert compared_flops(launches, case, None, "2.13.0") is None


def test_the_change_of_the_flops_is_added_to_that_of_the_structure():
    verdict = with_flops_of([1], reason=Outcome.IMPROVEMENT)

    assert verdict.outcome is Outcome.REGRESSION
    assert verdict.reason == "1 collective a step; FLOPs of a step: 1,000,000,000 → 1"


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"flops": [10**9]}, id="as many"),
        pytest.param({"flops": [1], "torch": "2.14.0"}, id="counted by another torch"),
        pytest.param({"flops": [1], "stored": None}, id="none stored"),
        pytest.param({"flops": [1, 10**9]}, id="a launch with as many"),
        pytest.param({"flops": [1], "one_batch": False}, id="batches of an iterator"),
        pytest.param({"flops": [0]}, id="an operator that is not counted"),
        pytest.param({"flops": [1], "compile": True}, id="compiled"),
    ],
)
def test_flops_that_are_not_exact_are_not_compared(changes):
    assert with_flops_of(**changes).outcome is Outcome.PASS


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"torch": "2.14.0"}, "torch 2.13.0+cu128 counted the stored ones, and has other formulas"),
        ({"one_batch": False}, "an iterator gives the batches, maybe of several sizes"),
        ({"compile": True}, "a compiler replaces the operators"),
        ({"flops": [None]}, "this session counted none"),
    ],
)
def test_a_structure_that_passes_states_why_flops_are_not_compared(changes, why):
    verdict = with_flops_of(**{"flops": [1], **changes})

    assert verdict.reason == f"1 collective a step; FLOPs are not compared: {why}"


def test_flops_of_an_iterators_batches_are_not_stored():
    """The one step that is counted depends on how many steps were timed before it."""
    case = make_case()

    assert counted_flops([make_launch(case, flops=5)]) == 5
    assert counted_flops([make_launch(case, flops=5, one_batch=False)]) is None
    assert counted_flops([make_launch(case, flops=5), make_launch(case, 1, flops=6)]) is None


@pytest.mark.parametrize(
    ("flops", "reason"),
    [
        ([3, 1, 2], "the step computes less than the baseline's; FLOPs of a step: 10 → 1 to 3"),
        ([11, 12], "the step computes more than the baseline's; FLOPs of a step: 10 → 11 to 12"),
        (
            [9, 12],
            "the step computes other work than the baseline's; FLOPs of a step: 10 → 9 to 12",
        ),
    ],
)
def test_launches_of_various_flops_are_a_regression_if_none_has_the_stored_count(flops, reason):
    verdict = with_flops_of(flops, stored=10)

    assert (verdict.outcome, verdict.reason) == (Outcome.REGRESSION, reason)


AMOUNTS = {
    "parameters": 1000,
    "gradient_bytes": 4000,
    "buckets": (4000,),
    "collectives": (LARGE, SMALL),
}


@pytest.mark.parametrize(
    ("changes", "outcome"),
    [
        pytest.param({"parameters": 1001}, Outcome.REGRESSION, id="more parameters"),
        pytest.param({"gradient_bytes": 4004}, Outcome.REGRESSION, id="more gradient bytes"),
        pytest.param(
            {"collectives": (LARGE, Collective(kind="all_reduce", dtype="float32", bytes=1028))},
            Outcome.REGRESSION,
            id="more bytes in as many calls",
        ),
        pytest.param(
            {
                "collectives": (
                    LARGE,
                    *[Collective(kind="all_reduce", dtype="float32", bytes=512)] * 2,
                )
            },
            Outcome.REGRESSION,
            id="more calls of as many bytes",
        ),
        pytest.param(
            {"parameters": 900, "collectives": (LARGE, SMALL, SMALL)},
            Outcome.REGRESSION,
            id="more of one and less of another",
        ),
        pytest.param({"parameters": 999}, Outcome.IMPROVEMENT, id="fewer parameters"),
        pytest.param({"gradient_bytes": 3996}, Outcome.IMPROVEMENT, id="fewer gradient bytes"),
        pytest.param({"collectives": (LARGE,)}, Outcome.IMPROVEMENT, id="fewer calls"),
        pytest.param({"buckets": (2000, 2000)}, Outcome.UNDECIDED, id="other buckets"),
        pytest.param({"collectives": (SMALL, LARGE)}, Outcome.UNDECIDED, id="another order"),
        pytest.param({"collectives": (LARGE, HALF)}, Outcome.UNDECIDED, id="another type"),
    ],
)
def test_other_work_is_a_regression_only_if_it_is_more(changes, outcome):
    stored, now = make_structure(**AMOUNTS), make_structure(**{**AMOUNTS, **changes})

    verdict = compare_structure([make_launch(make_case(), structure=now)], stored)

    assert verdict.outcome is outcome
    amount = {
        Outcome.REGRESSION: "more",
        Outcome.IMPROVEMENT: "less",
        Outcome.UNDECIDED: "as much, but other",
    }[outcome]
    changed = "; ".join(structure_changes(stored, now))
    assert verdict.reason == (f"the step does {amount} work than the baseline's: {changed}")


LESS, OTHER, MORE = ((LARGE,), (SMALL, LARGE), (LARGE, SMALL, SMALL))


@pytest.mark.parametrize(
    ("launches", "outcome"),
    [
        ([LESS, OTHER, MORE], Outcome.REGRESSION),
        ([MORE, LESS], Outcome.REGRESSION),
        ([LESS, OTHER], Outcome.UNDECIDED),
        ([(LARGE, SMALL), LESS], Outcome.IMPROVEMENT),
    ],
)
def test_the_worst_of_all_launches_decides(launches, outcome):
    case, stored = make_case(), make_structure(**AMOUNTS)
    measured = [
        make_launch(case, number, structure=make_structure(**{**AMOUNTS, "collectives": calls}))
        for number, calls in enumerate(launches)
    ]

    assert compare_structure(measured, stored).outcome is outcome


def judged(case, stored_of, own=None, **structure):
    """Return the verdict on a launch with ``structure``; the usual one is stored for cases."""
    shared = {known.id: make_stored_structure(known) for known in stored_of}
    launches = [make_launch(case, structure=make_structure(**structure))]
    return judge_structure(case, launches, own, shared)


def test_a_case_without_a_stored_structure_does_not_pass():
    verdict = judged(make_case(), [])

    assert verdict.outcome is Outcome.NO_BASELINE
    assert verdict.reason == "no structure of this case is stored"


def test_the_file_of_the_suite_precedes_the_machines_own_structure():
    """The file changes with the code; the machine's own is as old as its sessions."""
    case, odd = make_case(), make_structure(parameters=1)

    assert judged(case, [case], own=odd).outcome is Outcome.PASS
    assert judged(case, [case], own=odd, parameters=1).outcome is Outcome.IMPROVEMENT
    assert judged(case, [], own=odd, parameters=1).outcome is Outcome.PASS
    assert judged(case, [], own=odd).outcome is Outcome.REGRESSION


def test_a_stored_structure_of_other_work_is_incomparable_and_names_the_work():
    old, case = make_case(), make_cases(model={"hidden_dim": 48})[1]
    assert old.id == case.id

    verdict = judged(case, [old])

    assert verdict.outcome is Outcome.INCOMPARABLE
    assert verdict.reason.startswith("the stored structure is of other work: model.hidden_dim 32 →")
    of_this_machine = judged(case, [old], own=make_structure())
    assert of_this_machine.outcome is Outcome.INCOMPARABLE  # the change was not committed


def test_plain_ddp_does_on_four_ranks_what_it_does_on_two():
    one, two, four = make_cases(world_sizes=[1, 2, 4])

    assert judged(four, [one, two]).outcome is Outcome.PASS
    assert judged(four, [one, two], collectives=(LARGE,)).outcome is Outcome.REGRESSION
    assert judged(four, [one]).outcome is Outcome.NO_BASELINE


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"comm_hooks": [{"kind": "topk", "ratio": 0.01}]}, id="hook"),
        pytest.param({"strategy": "fsdp"}, id="fsdp"),
    ],
)
def test_a_structure_that_depends_on_the_ranks_is_not_determined_at_other_sizes(changes):
    _, two, four = make_cases(world_sizes=[1, 2, 4], **changes)

    verdict = judged(four, [two])

    assert verdict.outcome is Outcome.NO_BASELINE
    assert verdict.reason == (
        "no structure of 4 ranks is stored, and that of 2 does not determine it"
    )
    assert judged(four, [two], own=make_structure()).outcome is Outcome.PASS
    assert judged(two, [two]).outcome is Outcome.PASS


def test_a_stored_structure_of_other_work_is_not_used():
    (_, other), (_, case) = make_cases(precision="bf16"), make_cases(world_sizes=[1, 4])

    assert judged(case, [other]).outcome is Outcome.NO_BASELINE


def test_a_script_whose_steps_compute_different_amounts_states_so():
    case = make_scripts()[1]
    known = make_case_baseline(case, flops=10, flops_torch="2.13.0")
    passed = Verdict(outcome=Outcome.PASS, reason="1 collective a step")

    unequal = [make_launch(case, flops=11, one_batch=False)]
    equal = [make_launch(case, flops=11)]

    verdict = with_flops(passed, unequal, case, known, "2.13.0")
    assert verdict.outcome is Outcome.PASS
    assert "its steps compute different amounts" in verdict.reason
    assert with_flops(passed, equal, case, known, "2.13.0").outcome is Outcome.REGRESSION


def failing(fact, **lacks):
    """A launch in which rank 1 failed to read a fact, and its peer lost it."""
    ranks = [
        make_rank_result(rank, missing={fact: why}, **lacks)
        for rank, why in enumerate([PEER_LEFT, "OutOfMemoryError: no"])
    ]
    launch = make_launch(make_case())
    return msgspec.structs.replace(launch, ranks=tuple(ranks))


def test_a_structure_that_was_not_counted_is_no_pass_and_the_reason_is_stated():
    launches = [make_launch(make_case()), failing("structure", structure=None)]

    verdict = compare_structure(launches, launches[0].ranks[0].structure)

    assert verdict.outcome is Outcome.INVALID
    assert verdict.reason == (
        "no structure was counted in 1 of 2 launches: rank 1: OutOfMemoryError: no"
    )


def test_a_launch_without_a_structure_hides_no_regression_of_the_others():
    more = make_structure(parameters=2 * make_structure().parameters)
    launches = [failing("structure", structure=None), make_launch(make_case(), structure=more)]

    assert compare_structure(launches, make_structure()).outcome is Outcome.REGRESSION


@pytest.mark.parametrize(
    ("fact", "outcome", "stated"),
    [
        ("digest", Outcome.INVALID, "the parameters of the ranks were not compared in 1 of 1"),
        ("probe", Outcome.PASS, "as before; no terms of the step in 1 of 1 launches: rank 1: Out"),
        ("profile", Outcome.PASS, "as before; no profile in 1 of 1 launches: rank 1: OutOfMemory"),
    ],
)
def test_the_other_facts_that_failed_are_stated(fact, outcome, stated):
    verdict = with_missing(Verdict(outcome=Outcome.PASS, reason="as before"), [failing(fact)])

    assert verdict.outcome is outcome
    assert verdict.reason.startswith(stated)
