"""Strategies of training: none, DDP and FSDP2, with checkpointing, compiling and precision."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import (
    CPUOffloadPolicy,
    FSDPModule,
    MixedPrecisionPolicy,
    OffloadPolicy,
    fully_shard,
)
from torch.distributed.tensor import DTensor, Shard
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

from ddp_perf.core.case import Case
from ddp_perf.core.strategy import Precision
from ddp_perf.errors import ConfigError
from ddp_perf.strategies.communication_hooks import build_hook
from ddp_perf.torch_compat import broadcast_buffers_argument, shards_on_cpu

# The interface of a strategy to the training iteration, and the strategy ``none``.


Fill = Callable[[str, torch.Tensor], None]  # fills a parameter by its name, in place


@dataclass(frozen=True, kw_only=True)
class Parts:
    """A model on the rank's device and its repeated parts, which are empty if none are named.

    If it has ``fill`` it is on the meta device until it is allocated.
    """

    model: nn.Module
    blocks: Sequence[nn.Module]
    fill: Fill | None = None


class Strategy:
    """A strategy with its module. This base class is ``none``, which synchronises nothing."""

    def __init__(self, case: Case, parts: Parts, device: torch.device) -> None:
        self.module = parts.model

    def micro_step(self, last: bool) -> AbstractContextManager[None]:
        """Return the context of a micro-step's forward and backward; the last one synchronises."""
        return nullcontext()

    def after_step(self) -> None:
        """Run after the optimizer's step."""

    def is_full_step(self, step: int) -> bool:
        """Return whether a step, counted from 0, does all that any step of this strategy does."""
        return True


# Models on the meta device: their parameters are allocated where they are trained, then filled.


def fill_model(
    model: nn.Module, fill: Fill, device: torch.device, *, kept_on: torch.device
) -> None:
    """Fill the parameters of a model on the meta device, after allocating them on ``kept_on``.

    Each is filled whole on ``device``, one at a time, and a rank keeps its shard of it. So the
    values are the same under any strategy and for any number of ranks.

    Raises ConfigError if the model has buffers, which nothing would fill, or a parameter with two
    names, which would become two.
    """
    if len([*model.named_parameters(remove_duplicate=False)]) > len([*model.named_parameters()]):
        raise ConfigError(
            "Workload.fill: a parameter of the model has two names, and each would get a tensor of"
            " its own; use it once, or build the model on the device"
        )
    if buffer := next((name for name, _ in model.named_buffers()), None):
        raise ConfigError(
            f"Workload.fill: it fills no buffers, and the model has {buffer!r}; compute it in"
            " forward, or build the model on the device"
        )
    model.to_empty(device=kept_on)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            whole = torch.empty(parameter.shape, dtype=parameter.dtype, device=device)
            fill(name, whole)
            if isinstance(parameter, DTensor):
                parameter.to_local().copy_(_own_shard(parameter, whole))
            else:
                parameter.copy_(whole)


def _own_shard(parameter: DTensor, whole: torch.Tensor) -> torch.Tensor:
    """Return this rank's rows of the whole parameter; none if there are fewer rows than ranks."""
    mesh = parameter.device_mesh
    for dimension, placement in enumerate(parameter.placements):
        if isinstance(placement, Shard):
            chunks = whole.chunk(mesh.size(dimension), placement.dim)
            rank = mesh.get_local_rank(dimension)
            empty = whole.narrow(placement.dim, 0, 0)
            whole = chunks[rank] if rank < len(chunks) else empty
    return whole


# Checkpointing and compiling the parts of a model, before a strategy wraps the whole.
#
# Only the ``forward`` of a module is replaced, so names of parameters, types and FSDP's hooks are
# kept. (``Module.compile`` compiles nothing if the module's class is torch's own, such as
# ``nn.Sequential``: dynamo skips its ``_call_impl``.)


def units(case: Case, parts: Parts) -> Sequence[nn.Module]:
    """Return the modules to compile or shard: the whole model, or its blocks with FSDP.

    Raises ConfigError if FSDP wraps blocks and the workload names none.
    """
    if case.training.fsdp is None or case.training.fsdp.wrap == "model":
        return [parts.model]
    return _blocks(parts, "fsdp.wrap: block")


def checkpoint_blocks(parts: Parts) -> None:
    """Keep only the input of each block, and compute its activations again in the backward.

    Raises ConfigError if the workload names no blocks.
    """
    for block in _blocks(parts, "activation_checkpointing"):
        block.forward = functools.partial(checkpoint, block.forward, use_reentrant=False)


def compile_units(case: Case, parts: Parts) -> None:
    """Compile each unit. DDP still overlaps: torch splits the compiled graph at its buckets."""
    for unit in units(case, parts):
        unit.forward = torch.compile(unit.forward)


def _blocks(parts: Parts, option: str) -> Sequence[nn.Module]:
    if not parts.blocks:
        raise ConfigError(f"{option}: the workload names no blocks; give it Workload.blocks")
    return parts.blocks


# The number formats of forward and backward.


_COMPUTE_DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16}


def compute_dtype(precision: Precision | None) -> torch.dtype | None:
    """Return the half format of the computation, or None for float32, the parameters' format."""
    return None if precision is None else _COMPUTE_DTYPES.get(precision)


def autocast(case: Case, device: torch.device) -> AbstractContextManager[object]:
    """Return the autocast context of the forward; an empty one for fp32 and for FSDP.

    FSDP has its own policy of mixed precision, which also gathers in the half format.
    """
    dtype = compute_dtype(case.precision)
    if dtype is None or case.strategy == "fsdp":
        return nullcontext()
    return torch.autocast(device.type, dtype)


def grad_scaler(case: Case, device: torch.device) -> torch.amp.GradScaler:
    """Return the gradient scaler, which scales for fp16 only: small gradients would underflow."""
    return torch.amp.GradScaler(device.type, enabled=case.precision == "fp16")


# FSDP2: parameters, gradients and optimizer state are sharded over the ranks, or over a node's.


class Fsdp(Strategy):
    """The strategy FSDP2: each unit is sharded, then the rest of the model."""

    def __init__(self, case: Case, parts: Parts, device: torch.device) -> None:
        assert case.training.fsdp is not None  # the strategy is fsdp
        if device.type == "cpu" and not shards_on_cpu():
            raise ConfigError(f"fsdp on a CPU needs torch 2.9 or later, not {torch.__version__}")
        dtype = compute_dtype(case.precision)
        reduce_dtype = None if dtype is None else torch.float32
        policy = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=reduce_dtype)
        # The loss is computed outside of any policy, so the output is in full precision.
        outer = MixedPrecisionPolicy(
            param_dtype=dtype, reduce_dtype=reduce_dtype, output_dtype=reduce_dtype
        )
        # Without a mesh FSDP would shard over any accelerator that it finds, also in the cpu tier.
        # Over two dimensions it shards over the last one, and keeps copies over the first one.
        shape = case.layout if case.replicates else (dist.get_world_size(),)
        names = ("node", "rank")[-len(shape) :]
        mesh = init_device_mesh(device.type, shape, mesh_dim_names=names)
        offload = (
            CPUOffloadPolicy(pin_memory=device.type == "cuda")
            if case.training.fsdp.cpu_offload
            else OffloadPolicy()
        )
        reshard = case.training.fsdp.reshard_after_forward
        for unit in units(case, parts):
            fully_shard(
                unit,
                mesh=mesh,
                reshard_after_forward=reshard,
                mp_policy=outer if unit is parts.model else policy,
                offload_policy=offload,
            )
        if case.training.fsdp.wrap == "block":  # torch keeps the rest between forward and backward
            fully_shard(parts.model, mesh=mesh, mp_policy=outer, offload_policy=offload)
        if parts.fill is not None:
            kept_on = torch.device("cpu") if case.training.fsdp.cpu_offload else device
            fill_model(parts.model, parts.fill, device, kept_on=kept_on)
        assert isinstance(parts.model, FSDPModule)
        self.module = parts.model
        self._sharded: FSDPModule = parts.model

    def micro_step(self, last: bool) -> AbstractContextManager[None]:
        self._sharded.set_requires_gradient_sync(last)
        return nullcontext()


# ``DistributedDataParallel``, with a communication hook if the case has one.


class Ddp(Strategy):
    """The strategy DDP: gradients are all-reduced bucket by bucket during the backward."""

    def __init__(self, case: Case, parts: Parts, device: torch.device) -> None:
        assert case.training.ddp is not None  # the strategy is ddp
        self.module: DistributedDataParallel = DistributedDataParallel(
            parts.model,
            device_ids=[device.index] if device.type == "cuda" else None,
            bucket_cap_mb=case.training.ddp.bucket_cap_mb,
            gradient_as_bucket_view=case.training.ddp.gradient_as_bucket_view,
            static_graph=case.training.ddp.static_graph,
            find_unused_parameters=case.training.ddp.find_unused_parameters,
            **broadcast_buffers_argument(case.training.ddp.broadcast_buffers),
        )
        # DDP records a static graph in the first backward of all, which must synchronise.
        self._must_synchronise = case.training.ddp.static_graph
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


# The strategies by their names.


_STRATEGIES: dict[str, type[Strategy]] = {"none": Strategy, "ddp": Ddp, "fsdp": Fsdp}


def apply_strategy(case: Case, parts: Parts, device: torch.device) -> Strategy:
    """Apply the case's strategy to the model, which is changed in place, and return it.

    Raises ConfigError if the case needs blocks and the workload names none, or if a model on the
    meta device cannot be filled.
    """
    if parts.fill is not None and case.strategy != "fsdp":  # which shards it before
        fill_model(parts.model, parts.fill, device, kept_on=device)
    if case.training.activation_checkpointing:
        checkpoint_blocks(parts)
    if case.training.compile:
        compile_units(case, parts)
    return _STRATEGIES[case.strategy](case, parts, device)
