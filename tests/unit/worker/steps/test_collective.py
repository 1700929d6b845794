"""The check of a collective's result against arithmetic."""

from __future__ import annotations

import torch
import torch.distributed as dist

from ddp_perf.core.subject import FLOAT32, CollectiveStep
from ddp_perf.torch_compat import TorchDispatchMode
from ddp_perf.worker.steps.collective import CollectiveSteps
from tests.unit.worker.contexts import make_context
from tests.unit.worker.script.scripts import destroyed_group

RANKS = 64
PAYLOAD = 64 * 1021 * FLOAT32


class Alive(TorchDispatchMode):
    """The most memory that the results of operations have held at a time."""

    def __init__(self):
        super().__init__()
        self.held, self.most = [], 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        if isinstance(out, torch.Tensor):
            self.held.append(torch.multiprocessing.reductions.StorageWeakRef(out.untyped_storage()))
            alive = {ref.cdata for ref in self.held if not ref.expired()}
            self.most = max(self.most, len(alive))
        return out


def test_the_check_of_an_all_gather_needs_as_little_memory_for_many_ranks_as_for_few(monkeypatch):
    with destroyed_group():
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        step = CollectiveStep(kind="all_gather", payload=PAYLOAD, calls=1)
        steps = CollectiveSteps(step, make_context())
        monkeypatch.setattr(steps, "_world_size", RANKS)
        with Alive() as alive:
            expected = steps._expected()

    assert alive.most < 10
    assert expected[:3].tolist() == [1, 2, 3]
    last = expected.chunk(RANKS)[-1]
    assert last[:3].tolist() == [RANKS, RANKS + 1, RANKS + 2]
