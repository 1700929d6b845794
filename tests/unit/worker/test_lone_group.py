"""One rank alone in a group of many: collectives are dispatched, and their futures have results."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel
from torch.utils._python_dispatch import TorchDispatchMode

from ddp_perf.worker.counting.dry import COMPUTED_BYTES, DryRun
from ddp_perf.worker.lone_group import init_lone_group

RANK, RANKS = 2, 4


@pytest.fixture
def group():
    init_lone_group(RANK, RANKS)
    yield
    dist.destroy_process_group()


class Names(TorchDispatchMode):
    """Notes the names of the operators of c10d."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.namespace == "c10d":
            self.names.append(func._schema.name.removeprefix("c10d::"))
        return func(*args, **(kwargs or {}))


def _gather(whole, share):
    return dist.all_gather(list(whole.chunk(RANKS)), share, async_op=True)


COLLECTIVES = {
    "allreduce_": lambda whole, share: dist.all_reduce(whole, async_op=True),
    "broadcast_": lambda whole, share: dist.broadcast(whole, 0, async_op=True),
    "reduce_": lambda whole, share: dist.reduce(whole, 0, async_op=True),
    "allgather_": _gather,
    "reduce_scatter_": lambda whole, share: dist.reduce_scatter(
        share, list(whole.chunk(RANKS)), async_op=True
    ),
    "alltoall_": lambda whole, share: dist.all_to_all(
        list(whole.chunk(RANKS)), list(whole.chunk(RANKS)), async_op=True
    ),
    "alltoall_base_": lambda whole, share: dist.all_to_all_single(whole, whole, async_op=True),
    "_allgather_base_": lambda whole, share: dist.group.WORLD._allgather_base(whole, share),
    "_reduce_scatter_base_": lambda whole, share: dist.group.WORLD._reduce_scatter_base(
        share, whole, dist.ReduceScatterOptions()
    ),
}


@pytest.mark.parametrize("dry", [False, True], ids=["computed", "dry"])
@pytest.mark.parametrize("size", [16, COMPUTED_BYTES], ids=["small", "large"])
@pytest.mark.parametrize("name", COLLECTIVES)
def test_a_collective_is_dispatched_and_its_future_has_the_result(group, name, size, dry):
    whole, share = torch.ones(size), torch.ones(size // RANKS)
    output = share if "scatter" in name else whole
    with DryRun() if dry else Names(), Names() as seen:
        work = COLLECTIVES[name](whole, share)

    assert seen.names == [name]
    assert work.wait()
    assert _first(work.get_future().value()).data_ptr() == output.data_ptr()


def _first(value):
    """Return the first tensor of lists of tensors."""
    return _first(value[0]) if isinstance(value, list) else value


def test_objects_are_gathered(group):
    gathered = [None] * RANKS
    with DryRun():
        dist.all_gather_object(gathered, {"rank": RANK})

    assert gathered == [{"rank": RANK}] * RANKS


def test_subgroups_have_their_rank_and_size(group):
    own, groups = dist.new_subgroups(2)

    assert (own.rank(), own.size(), len(groups)) == (0, 2, 2)
    dist.all_reduce(torch.ones(2), group=own)


def test_a_mesh_has_two_dimensions(group):
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("node", "rank"))

    assert list(mesh.get_coordinate()) == [1, 0]
    assert mesh["rank"].get_group().size() == 2


def test_a_communication_hook_uses_the_future_of_its_all_reduce(group):
    def half(state, bucket):
        work = dist.all_reduce(bucket.buffer().half(), async_op=True)
        return work.get_future().then(lambda future: bucket.buffer().copy_(future.value()[0]))

    module = DistributedDataParallel(nn.Linear(4, 4))
    module.register_comm_hook(None, half)
    with Names() as seen:
        module(torch.ones(2, 4)).sum().backward()

    assert seen.names == ["allreduce_"]
    assert module.module.weight.grad.sum() == 32
