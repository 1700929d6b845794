"""The structures that a suite's file states, and those that a session adds to it."""

from __future__ import annotations

import msgspec
import pytest

from ddp_perf.baselines.save import NewSession, known_structure, merge_structures
from ddp_perf.baselines.work import WorkBaseline
from tests.builders import (
    make_baseline,
    make_case_baseline,
    make_cases,
    make_scripts,
    make_session,
    make_stored_structure,
    make_structure,
)

ONE, TWO, FOUR, EIGHT = make_cases(world_sizes=[1, 2, 4, 8])
USUAL, OTHER = make_structure(), make_structure(parameters=809)
NOTHING = make_baseline()


def stored(*cases, structure=USUAL):
    return {case.id: make_stored_structure(case, structure) for case in cases}


def merged(shared, *measured, mode="missing", baseline=NOTHING):
    """Merge the structures of the cases; ``measured`` are cases, or pairs with a structure."""
    sessions = [
        NewSession(case=case, session=make_session([0.01]), structure=structure)
        for case, structure in (one if isinstance(one, tuple) else (one, USUAL) for one in measured)
    ]
    stated = WorkBaseline(suite="quick", cases=shared)
    return merge_structures(stated, sessions, baseline, mode=mode).cases


@pytest.mark.parametrize("mode", ["missing", "append", "accept"])
def test_a_structure_that_the_file_does_not_state_is_added(mode):
    assert merged(stored(ONE), ONE, TWO, mode=mode) == stored(ONE, TWO)


@pytest.mark.parametrize("mode", ["missing", "append"])
def test_a_structure_that_the_file_states_is_replaced_only_if_that_is_accepted(mode):
    assert merged(stored(TWO), (TWO, OTHER), mode=mode) == stored(TWO)
    assert merged(stored(TWO), (TWO, OTHER), mode="accept") == stored(TWO, structure=OTHER)


@pytest.mark.parametrize("mode", ["missing", "append"])
def test_a_change_since_this_machines_own_sessions_is_taken_over_only_if_accepted(mode):
    """The file has no such case yet: it must not begin with the work that one branch added."""
    own = make_baseline({TWO.id: make_case_baseline(TWO, structure=USUAL)})

    assert merged({}, (TWO, OTHER), mode=mode, baseline=own) == {}
    assert merged({}, (TWO, OTHER), mode="accept", baseline=own) == stored(TWO, structure=OTHER)
    assert merged({}, TWO, mode=mode, baseline=own) == stored(TWO)


def test_sessions_of_other_work_on_this_machine_hinder_nothing():
    (_, wider) = make_cases(model={"hidden_dim": 48})
    own = make_baseline({wider.id: make_case_baseline(wider, structure=OTHER)})

    assert merged({}, TWO, baseline=own) == stored(TWO)


@pytest.mark.parametrize("mode", ["missing", "append"])
def test_the_structure_of_other_work_is_replaced_only_if_that_is_accepted(mode):
    (_, wider) = make_cases(model={"hidden_dim": 48})
    assert wider.id == TWO.id

    assert merged(stored(wider), TWO, mode=mode) == stored(wider)
    assert merged(stored(wider), TWO, mode="accept") == stored(TWO)


@pytest.mark.parametrize("mode", ["missing", "append", "accept"])
def test_plain_ddp_adds_the_structure_of_its_smallest_number_of_ranks(mode):
    assert merged({}, ONE, EIGHT, FOUR, mode=mode) == stored(ONE, FOUR)
    assert merged(stored(ONE, TWO), EIGHT, mode=mode) == stored(ONE, TWO)


def test_a_number_of_ranks_with_another_structure_is_added_beside_the_smallest():
    """A user's model may do what it likes on four ranks."""
    found = merged({}, TWO, (FOUR, OTHER), EIGHT)

    assert found == {**stored(TWO), **stored(FOUR, structure=OTHER)}
    assert known_structure(FOUR, found) == OTHER
    assert known_structure(EIGHT, found) == USUAL


def test_fsdp_adds_each_number_of_ranks():
    cases = make_cases(strategy="fsdp", world_sizes=[1, 2, 4])

    assert merged({}, *cases) == stored(*cases)


def test_one_rank_of_ddp_does_not_determine_two():
    one, two = make_cases(denominator="ddp-1")
    assert one.strategy == two.strategy == "ddp"

    assert known_structure(two, stored(one)) is None
    assert known_structure(one, stored(two)) is None


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"comm_hooks": [{"kind": "fp16"}]}, id="fp16"),
        pytest.param({"comm_hooks": [{"kind": "powersgd"}]}, id="powersgd"),
        pytest.param({"comm_hooks": [{"kind": "hierarchical", "group_size": 2}]}, id="groups"),
    ],
)
def test_a_hook_that_sends_the_same_over_any_number_of_ranks_adds_the_smallest(changes):
    two, eight = make_cases(world_sizes=[2, 8], **changes)

    assert merged({}, eight, two) == stored(two)


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"strategy": "fsdp"}, id="fsdp"),
        pytest.param({"comm_hooks": [{"kind": "topk"}]}, id="topk"),
        pytest.param(
            {"comm_hooks": [{"kind": "hierarchical", "group_size": 2, "ratio": 0.01}]},
            id="topk between groups",
        ),
    ],
)
def test_what_is_divided_or_gathered_by_rank_is_stored_for_each_number(changes):
    two, eight = make_cases(world_sizes=[2, 8], **changes)

    assert known_structure(eight, stored(two)) is None


@pytest.mark.parametrize(
    "changes",
    [
        {"batch_sizes": [96]},
        {"batch_sizes": {"global": [96]}},
        {"workload": "text_transformer", "data": {"num_workers": 2}},
    ],
    ids=["per rank", "of all ranks", "data"],
)
@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_an_included_workload_has_one_structure_for_any_batch_and_data(strategy, changes):
    usual = {"strategy": strategy, "world_sizes": [1, 4]}
    if changes.get("workload"):
        usual["model"] = {"dataset": "ag_news"}
    plain = {**usual, **changes, "data": {}}
    (_, shipped), (_, own) = make_cases(**plain), make_cases(**{**usual, **changes})
    shipped = msgspec.structs.replace(shipped, batch_size=64, global_batch=None)
    assert shipped.work() != own.work()

    assert known_structure(own, stored(shipped)) == USUAL


def test_a_workload_of_the_user_may_send_its_batch():
    user = {"workload": "my_model:build", "model": {}, "strategy": "fsdp"}
    (_, two), (_, larger) = make_cases(**user), make_cases(**user, batch_sizes=[96])

    assert known_structure(larger, stored(two)) is None


def test_the_entry_of_the_same_batch_precedes_one_of_fewer_ranks():
    shared = {**stored(*make_cases(batch_sizes=[96])), **stored(FOUR, structure=OTHER)}

    assert known_structure(EIGHT, shared) == OTHER


@pytest.mark.parametrize(
    ("changes", "known"),
    [
        ({"strategy": "fsdp"}, True),
        ({"strategy": "fsdp", "fsdp": {"replicate": "nodes"}}, False),
        ({"comm_hooks": [{"kind": "topk"}]}, True),
        ({"comm_hooks": [{"kind": "hierarchical", "group_size": "node"}]}, False),
    ],
    ids=["fsdp", "hsdp", "topk", "groups of nodes"],
)
def test_nodes_count_where_the_strategy_follows_them(changes, known):
    (one_node,) = make_cases(world_sizes=[8], **changes)
    two_nodes = msgspec.structs.replace(one_node, nodes=2)

    assert (known_structure(two_nodes, stored(one_node)) is not None) is known


def test_a_case_that_does_not_train_adds_nothing():
    assert merged({}, (ONE, None)) == {}


def test_the_entry_of_the_case_itself_precedes_one_of_the_same_work_under_another_id():
    shared = {
        "another": make_stored_structure(TWO, OTHER),
        **stored(TWO),
    }

    assert known_structure(TWO, shared) == USUAL


def test_a_structure_of_a_script_does_not_determine_that_of_other_ranks():
    """It may shard its parameters over them."""
    two, four = make_scripts(world_sizes=[2, 4], samples_per_step="{batch_size}")

    assert known_structure(two, stored(two)) == USUAL
    assert known_structure(four, stored(two)) is None
