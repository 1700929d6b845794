"""FSDP2: parameters, gradients and optimizer state are sharded over the ranks, or over a node's."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import (
    CPUOffloadPolicy,
    FSDPModule,
    MixedPrecisionPolicy,
    OffloadPolicy,
    fully_shard,
)

from ddp_perf.core.case import Case
from ddp_perf.strategies.allocation import fill_model
from ddp_perf.strategies.blocks import units
from ddp_perf.strategies.precision import compute_dtype
from ddp_perf.strategies.strategy import Parts, Strategy


class Fsdp(Strategy):
    """The strategy FSDP2: each unit is sharded, then the rest of the model."""

    def __init__(self, case: Case, parts: Parts, device: torch.device) -> None:
        assert case.fsdp is not None  # the strategy is fsdp
        dtype = compute_dtype(case.precision)
        reduce_dtype = None if dtype is None else torch.float32
        policy = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=reduce_dtype)
        # The loss is computed outside of any policy, so the output is in full precision.
        outer = MixedPrecisionPolicy(
            param_dtype=dtype, reduce_dtype=reduce_dtype, output_dtype=reduce_dtype
        )
        # Without a mesh FSDP would shard over any accelerator that it finds, also in the cpu tier.
        # Over two dimensions it shards over the last one, and keeps copies over the first one.
        shape = (case.nodes, case.ranks_per_node) if case.replicates else (dist.get_world_size(),)
        names = ("node", "rank")[-len(shape) :]
        mesh = init_device_mesh(device.type, shape, mesh_dim_names=names)
        offload = (
            CPUOffloadPolicy(pin_memory=device.type == "cuda")
            if case.fsdp.cpu_offload
            else OffloadPolicy()
        )
        reshard = case.fsdp.reshard_after_forward
        for unit in units(case, parts):
            fully_shard(
                unit,
                mesh=mesh,
                reshard_after_forward=reshard,
                mp_policy=outer if unit is parts.model else policy,
                offload_policy=offload,
            )
        if case.fsdp.wrap == "block":  # torch keeps the rest between forward and backward
            fully_shard(parts.model, mesh=mesh, mp_policy=outer, offload_policy=offload)
        if parts.fill is not None:
            kept_on = torch.device("cpu") if case.fsdp.cpu_offload else device
            fill_model(parts.model, parts.fill, device, kept_on=kept_on)
        assert isinstance(parts.model, FSDPModule)
        self.module = parts.model
        self._sharded: FSDPModule = parts.model

    def micro_step(self, last: bool) -> AbstractContextManager[None]:
        self._sharded.set_requires_gradient_sync(last)
        return nullcontext()
