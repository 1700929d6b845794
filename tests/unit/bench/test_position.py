"""The position of a rank, from the variables of torchrun and of other launchers."""

from __future__ import annotations

import pytest

from ddp_perf.bench.flags import Position, position_of, position_on
from ddp_perf.errors import LaunchError

TORCHRUN = {
    "RANK": "5",
    "LOCAL_RANK": "1",
    "WORLD_SIZE": "8",
    "LOCAL_WORLD_SIZE": "4",
    "GROUP_WORLD_SIZE": "2",
}


def test_without_rank_a_process_is_alone():
    assert position_of({"WORLD_SIZE": "2"}) == Position(rank=0, world_size=1, alone=True)


@pytest.mark.parametrize("left_out", [None, "GROUP_WORLD_SIZE"])
def test_torchrun_states_ranks_and_nodes(left_out):
    environ = {name: value for name, value in TORCHRUN.items() if name != left_out}

    assert position_of(environ) == Position(
        rank=5, local_rank=1, world_size=8, nodes=2, alone=False
    )


def test_a_launcher_that_states_no_nodes_has_one():
    environ = {"RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "2"}

    position = position_of(environ)

    assert (position.nodes, position.states_nodes) == (1, False)
    assert position_of(TORCHRUN).states_nodes


@pytest.mark.parametrize(
    ("hosts", "nodes"), [(["a"] * 4, 1), (["a", "a", "b", "b"], 2), (["a", "b", "c", "d"], 4)]
)
def test_the_hosts_of_the_ranks_show_the_nodes(hosts, nodes):
    position = Position(rank=1, world_size=4, alone=False, states_nodes=False)

    assert position_on(position, hosts).nodes == nodes


@pytest.mark.parametrize(
    "hosts", [["a", "a", "a", "b"], ["a", "b", "a", "b"], ["a", "b", "b", "b"]]
)
def test_hosts_with_ranks_in_turn_or_not_equally_many_are_refused(hosts):
    with pytest.raises(LaunchError, match=f"the ranks run on {', '.join(hosts)}: give each host"):
        position_on(Position(world_size=4), hosts)


def test_nodes_with_different_numbers_of_ranks_are_refused():
    with pytest.raises(LaunchError, match=r"4 of 6 ranks on 2 nodes; .* --nproc_per_node"):
        position_of(TORCHRUN | {"WORLD_SIZE": "6"})


@pytest.mark.parametrize(
    ("changes", "lacking"),
    [({"LOCAL_RANK": ""}, "LOCAL_RANK"), ({"RANK": "abc", "WORLD_SIZE": "-1"}, "RANK, WORLD_SIZE")],
)
def test_variables_that_lack_or_are_no_numbers_are_named(changes, lacking):
    """The PyTorchJob of Kubernetes sets RANK and WORLD_SIZE, and no LOCAL_RANK."""
    with pytest.raises(LaunchError, match=f"{lacking} is missing or no number: start .* torchrun"):
        position_of(TORCHRUN | changes)
