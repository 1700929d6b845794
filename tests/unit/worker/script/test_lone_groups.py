"""A script whose rank runs alone may make any group, and never waits for another rank."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist

from ddp_perf.worker.lone_group import LONE, register_lone_backend
from ddp_perf.worker.script.groups import groups_of

RANK, RANKS = 2, 4
imported_before = dist.init_process_group  # as ``from torch.distributed import …`` has it

# torch warns of a backend that this build of it lacks, and that no lone group uses.
without_nccl = pytest.mark.filterwarnings("ignore:Attempted to get default timeout for nccl")


@pytest.fixture
def alone():
    """A rank whose code makes its own groups."""
    register_lone_backend()
    with groups_of(LONE, RANK, RANKS):
        yield
        dist.destroy_process_group()


@without_nccl
@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"backend": "gloo"},
        {"backend": "nccl", "init_method": "tcp://192.0.2.1:1"},
        {"backend": "cpu:gloo,cuda:nccl"},
        {"backend": "gloo", "rank": RANK, "world_size": RANKS},
        {"backend": "gloo", "rank": RANK, "world_size": RANKS, "store": dist.HashStore()},
    ],
    ids=["default", "gloo", "nccl", "both", "rank", "store"],
)
def test_a_script_that_asks_for_any_group_is_alone(alone, arguments):
    imported_before(**arguments)

    assert (dist.get_rank(), dist.get_world_size()) == (RANK, RANKS)
    dist.barrier()
    dist.all_reduce(torch.ones(2))


def test_a_script_that_states_another_size_has_it(alone):
    dist.init_process_group("gloo", rank=0, world_size=2)

    assert (dist.get_rank(), dist.get_world_size()) == (0, 2)


@without_nccl
@pytest.mark.parametrize("backend", [None, "gloo", "nccl"])
def test_groups_of_a_script_are_alone(alone, backend):
    dist.init_process_group("gloo")

    own, other = dist.new_group([1, RANK], backend=backend), dist.new_group([0, 1], backend=backend)

    assert (own.rank(), own.size()) == (1, 2)
    assert other is dist.GroupMember.NON_GROUP_MEMBER
    dist.all_reduce(torch.ones(2), group=own)


def test_objects_of_another_rank_are_the_ranks_own(alone):
    dist.init_process_group("gloo")
    objects = [{"rank": RANK}]

    dist.broadcast_object_list(objects, src=0)

    assert objects == [{"rank": RANK}]


def test_groups_are_real_ones_again_after_the_block():
    register_lone_backend()
    with groups_of(LONE, RANK, RANKS):
        pass

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    assert dist.get_backend() == "gloo"
    dist.destroy_process_group()


@without_nccl
def test_a_script_sees_the_backend_that_it_asked_for(alone):
    dist.init_process_group("nccl")
    other = dist.new_group([0, RANK], backend="gloo")

    assert (dist.get_backend(), dist.get_backend(other)) == ("nccl", "gloo")
    dist.monitored_barrier(other)
