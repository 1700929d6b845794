"""The training iteration of a case, as one rank runs it."""

from __future__ import annotations

import itertools

import torch

from ddp_perf.core.case import Case
from ddp_perf.strategies.wrap import wrap
from ddp_perf.torch_compat import forbid_tf32
from ddp_perf.worker.heartbeat import Heartbeats
from ddp_perf.workloads.registry import build
from ddp_perf.workloads.workload import BuildContext

_SEED = 0  # the same on every rank: the plain module and DDP start from the same parameters


class Trainer:
    """The training iteration of a case on one rank."""

    def __init__(self, case: Case, rank: int, device: torch.device, heartbeats: Heartbeats) -> None:
        torch.manual_seed(_SEED)
        forbid_tf32()
        context = BuildContext(
            device=device,
            batch_size=case.batch_size,
            rank=rank,
            world_size=case.world_size,
            data=case.data,
        )
        workload = build(case.workload, context, case.model)
        self.module = wrap(case, workload.model, device)
        batch = workload.batch
        self._batches = itertools.repeat(batch) if isinstance(batch, tuple) else batch
        self.unit = workload.unit
        self.loss = workload.loss
        self._optimizer = workload.optimizer(self.module.parameters())
        self._heartbeats = heartbeats
        self._rank = rank

    def step(self) -> None:
        self._optimizer.zero_grad(set_to_none=True)
        loss = self.loss(self.module, next(self._batches))
        self.beat()
        loss.backward()  # type: ignore[no-untyped-call]  # torch's own signature
        self._optimizer.step()
        self.beat()

    def beat(self) -> None:
        """Tell the supervisor that this rank gets on."""
        self._heartbeats.beat(self._rank)
