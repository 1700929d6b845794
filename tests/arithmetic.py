"""The structure of a step by arithmetic: from the shapes of a model and the options of a case.

Nothing here counts: no process group, no DDP, no FSDP. The shapes come from the meta device.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch

from ddp_perf.core.case import Case
from ddp_perf.core.launch import Collective, Structure
from ddp_perf.core.strategy import HierarchicalHook, PostLocalSgdHook, PowerSgdHook, TopKHook
from ddp_perf.workloads.workload import BuildContext, build_workload

Shape = tuple[int, ...]
HALF = {"fp16": "float16", "bf16": "bfloat16"}
BYTES = {"float32": 4, "int32": 4, "int64": 8, "float16": 2, "bfloat16": 2}


class Shapes(NamedTuple):
    """A model: its parameters by name, the names of each block's, and its buffers by type."""

    parameters: dict[str, Shape]
    blocks: tuple[tuple[str, ...], ...]
    buffers: dict[str, int]  # values of each type

    @property
    def rest(self) -> list[str]:
        """The parameters of no block."""
        in_blocks = {name for block in self.blocks for name in block}
        return [name for name in self.parameters if name not in in_blocks]


def expected_structure(case: Case) -> Structure:
    """Return the structure of a step of a case of an included workload."""
    shapes = shapes_of(case)
    count = sum(map(math.prod, shapes.parameters.values()))
    buckets: Sequence[Sequence[Shape]] = ()
    collectives: Sequence[Collective] = ()
    if case.strategy == "ddp":
        buckets = buckets_of(case, shapes)
        collectives = [*broadcasts(case, shapes), *reductions(case, buckets)]
        if isinstance(case.training.comm_hook, PostLocalSgdHook):
            collectives.append(one("all_reduce", "float32", count))  # the parameters' average
        if case.training.ddp.find_unused_parameters and not case.training.ddp.static_graph:
            collectives.append(one("all_reduce", "int32", len(shapes.parameters)))  # used or not
    if case.strategy == "fsdp":
        collectives = sharded(case, shapes)
        if case.precision == "fp16":
            collectives.append(one("all_reduce", "float32", 1))  # did a gradient overflow?
    return Structure(
        parameters=count,
        gradient_bytes=4 * count,
        buckets=tuple(4 * numel(bucket) for bucket in buckets),
        collectives=tuple(collectives),
    )


def shapes_of(case: Case) -> Shapes:
    return _shapes(case.workload, tuple(sorted(case.training.model.items())))


@functools.cache
def _shapes(workload: str, model: tuple) -> Shapes:
    meta = torch.device("meta")
    context = BuildContext(device=meta, batch_size=1, rank=0, world_size=1)
    with meta:
        built = build_workload(workload, context, dict(model))
    names = {id(parameter): name for name, parameter in built.model.named_parameters()}
    buffers: dict[str, int] = {}
    for buffer in built.model.buffers():
        dtype = str(buffer.dtype).removeprefix("torch.")
        buffers[dtype] = buffers.get(dtype, 0) + buffer.numel()
    return Shapes(
        parameters={name: tuple(p.shape) for name, p in built.model.named_parameters()},
        blocks=tuple(tuple(names[id(p)] for p in block.parameters()) for block in built.blocks),
        buffers=buffers,
    )


def one(kind: str, dtype: str, count: int) -> Collective:
    return Collective(kind=kind, dtype=dtype, bytes=BYTES[dtype] * count)


def numel(shapes: Sequence[Shape]) -> int:
    return sum(map(math.prod, shapes))


# DDP


def buckets_of(case: Case, shapes: Shapes) -> list[list[Shape]]:
    """Return the shapes of each bucket: one closes as soon as it reaches its size.

    DDP fills them in the order in which gradients were ready in the first backward. If it searches
    for unused parameters this order may change, so it keeps the first buckets, which it filled in
    the order of the parameters, and reduces the last one first.
    """
    limit = case.training.ddp.bucket_cap_mb * 2**20
    keeps_first = case.training.ddp.find_unused_parameters and not case.training.ddp.static_graph
    names = list(shapes.parameters) if keeps_first else ready_order(case, shapes)
    buckets: list[list[Shape]] = [[]]
    for name in names:
        if 4 * numel(buckets[-1]) >= limit:
            buckets.append([])
        buckets[-1].append(shapes.parameters[name])
    return buckets[::-1] if keeps_first else buckets


def ready_order(case: Case, shapes: Shapes) -> list[str]:
    """Return the parameters in the order in which the backward computes their gradients.

    It is the reverse of their use. A layer's bias is ready before its weight, unless autocast cast
    both. ResNet's shortcuts are used after the layers beside them, and registered before.
    """
    names = list(shapes.parameters)
    layers = {name: place for place, name in enumerate(dict.fromkeys(map(_layer, names)))}
    blocks = {name: place for place, name in enumerate(dict.fromkeys(map(_block, names)))}
    forward = sorted(names, key=lambda n: (blocks[_block(n)], "shortcut" in n, layers[_layer(n)]))
    if case.precision in HALF:
        last_first = list(dict.fromkeys(map(_layer, reversed(forward))))
        return [name for layer in last_first for name in names if _layer(name) == layer]
    return forward[::-1]


def _layer(name: str) -> str:
    return name.rpartition(".")[0]


def _block(name: str) -> str:
    """Return the name of the residual block that has a shortcut, else that of the layer."""
    found = re.match(r"(.*stages\.\d+\.layers\.\d+)\.", name)
    return found[1] if found else _layer(name)


def broadcasts(case: Case, shapes: Shapes) -> Iterator[Collective]:
    """Yield what rank 0 sends before each forward: all buffers, one message for each type."""
    if case.training.ddp.broadcast_buffers:
        for dtype, count in shapes.buffers.items():
            yield one("broadcast", dtype, count)


def reductions(case: Case, buckets: Sequence[Sequence[Shape]]) -> Iterator[Collective]:
    """Yield the collectives of all buckets, by the formula of the hook."""
    hook = case.training.comm_hook
    wire = HALF.get(getattr(hook, "wire", None) or getattr(hook, "kind", ""), "float32")
    for bucket in buckets:
        count = numel(bucket)
        if isinstance(hook, TopKHook):
            yield from gathered(hook.ratio, count, case.world_size, wire)
        elif isinstance(hook, HierarchicalHook):
            yield from hierarchical(case, hook, count, wire)
        elif isinstance(hook, PowerSgdHook):
            yield from (one("all_reduce", wire, n) for n in low_rank(hook.rank, bucket))
        else:
            yield one("all_reduce", wire, count)


def gathered(ratio: float, count: int, ranks: int, wire: str) -> Iterator[Collective]:
    """Yield the gathers of Top-K: the largest values of each rank, and their places."""
    kept = ranks * math.ceil(ratio * count)
    yield one("all_gather", wire, kept)
    yield one("all_gather", "int32", kept)


def hierarchical(case: Case, hook: HierarchicalHook, count: int, wire: str) -> Iterator[Collective]:
    """Yield the reduce-scatter within a group, the sum over groups, and the all-gather within."""
    size = case.world_size // case.nodes if hook.group_size == "node" else hook.group_size
    share = math.ceil(count / size)
    yield one("reduce_scatter", wire, size * share)
    if hook.ratio is None:
        yield one("all_reduce", wire, share)
    else:
        yield from gathered(hook.ratio, share, case.world_size // size, wire)
    yield one("all_gather", wire, size * share)


def low_rank(rank: int, bucket: Sequence[Shape]) -> tuple[int, int, int]:
    """Return the values of PowerSGD: what stays as it is, the left factors, and the right ones.

    A matrix is approximated if its factors have less than half of its values.
    """
    rest = left = right = 0
    for shape in bucket:
        rows, columns = shape[0], math.prod(shape[1:])
        if len(shape) > 1 and 2 * rank * (rows + columns) < rows * columns:
            left += rank * rows
            right += rank * columns
        else:
            rest += rows * columns
    return rest, left, right


# FSDP2


def sharded(case: Case, shapes: Shapes) -> list[Collective]:
    """Return the collectives of FSDP2: parameters are gathered by unit, gradients scattered.

    Blocks that were freed after the forward are gathered again, the next one before the gradients
    of the last one are reduced. The rest of the model stays from forward to backward.
    """
    units = [shapes.rest, *shapes.blocks]
    reshard = case.training.fsdp.reshard_after_forward
    if case.training.fsdp.wrap == "model":
        root = list(shapes.parameters)
        again = [_gather(case, shapes, root)] if reshard else []
        return [_gather(case, shapes, root), *again, *_scatter(case, shapes, root)]
    found = [_gather(case, shapes, unit) for unit in units]
    blocks = units[:0:-1]  # in the order of the backward
    if reshard and blocks:
        found.append(_gather(case, shapes, blocks[0]))
    for place, block in enumerate(blocks):
        if reshard and place + 1 < len(blocks):
            found.append(_gather(case, shapes, blocks[place + 1]))
        found += _scatter(case, shapes, block)
    return found + _scatter(case, shapes, shapes.rest)


def _gather(case: Case, shapes: Shapes, unit: Sequence[str]) -> Collective:
    return one("all_gather", HALF.get(case.precision, "float32"), _padded(case, shapes, unit))


def _scatter(case: Case, shapes: Shapes, unit: Sequence[str]) -> list[Collective]:
    """Return the reduction of the gradients, which are in float32, and that of copies on nodes."""
    count = _padded(case, shapes, unit)
    within = one("reduce_scatter", "float32", count)
    if not case.replicates:
        return [within]
    return [within, one("all_reduce", "float32", count // case.ranks_per_node)]


def _padded(case: Case, shapes: Shapes, unit: Sequence[str]) -> int:
    """Return the values of a unit: the rows of each parameter are a multiple of the shards."""
    shards = case.ranks_per_node if case.replicates else case.world_size
    return sum(
        shards
        * math.ceil(shapes.parameters[name][0] / shards)
        * math.prod(shapes.parameters[name][1:])
        for name in unit
    )
