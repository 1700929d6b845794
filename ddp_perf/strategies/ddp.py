"""``DistributedDataParallel``, with a communication hook if the case has one."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch
from torch.nn.parallel import DistributedDataParallel

from ddp_perf.core.case import Case
from ddp_perf.strategies.hooks.registry import build_hook
from ddp_perf.strategies.strategy import Parts, Strategy
from ddp_perf.torch_compat import broadcast_buffers_argument


class Ddp(Strategy):
    """The strategy DDP: gradients are all-reduced bucket by bucket during the backward."""

    def __init__(self, case: Case, parts: Parts, device: torch.device) -> None:
        assert case.ddp is not None  # the strategy is ddp
        self.module: DistributedDataParallel = DistributedDataParallel(
            parts.model,
            device_ids=[device.index] if device.type == "cuda" else None,
            bucket_cap_mb=case.ddp.bucket_cap_mb,
            gradient_as_bucket_view=case.ddp.gradient_as_bucket_view,
            static_graph=case.ddp.static_graph,
            find_unused_parameters=case.ddp.find_unused_parameters,
            **broadcast_buffers_argument(case.ddp.broadcast_buffers),
        )
        # DDP records a static graph in the first backward of all, which must synchronise.
        self._must_synchronise = case.ddp.static_graph
        self._hook = build_hook(case, device)
        if (hook := self._hook) is not None:
            # A lambda, since DDP compares annotations with types, and here annotations are text.
            # It also hides the name of torch's bf16 hook, which a torch without CUDA refuses.
            self.module.register_comm_hook(None, lambda state, bucket: hook.reduce(bucket))

    def micro_step(self, last: bool) -> AbstractContextManager[None]:
        if last or self._must_synchronise:
            self._must_synchronise = False
            return nullcontext()
        context: AbstractContextManager[None] = self.module.no_sync()
        return context

    def after_step(self) -> None:
        if self._hook is not None:
            self._hook.after_step(self.module.parameters())

    def is_full_step(self, step: int) -> bool:
        return self._hook is None or self._hook.is_full_step(step)
