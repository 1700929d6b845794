"""The strategy of a case: options of DDP, of FSDP2 and of communication hooks."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

SuiteStrategy = Literal["none", "ddp", "fsdp"]
Strategy = Literal["none", "ddp", "fsdp", "script"]  # script: what the script itself does
Precision = Literal["fp32", "tf32", "fp16", "bf16"]
Ratio = Annotated[float, Meta(gt=0, le=1)]
# The size of the first bucket of torch._dynamo's DDPOptimizer, and its smallest size.
LEAST_COMPILED_BUCKET_MB = 1

_GroupSize = Annotated[
    Annotated[int, Meta(ge=2)] | Literal["node"],
    Meta(description="Neighbouring ranks that form a group. node: the ranks of each node."),
]
# DDP rebuilds its buckets after the first step, so a hook may keep state of them only from then on.
_FIRST_STABLE = 2
_StartStep = Annotated[
    int,
    Meta(ge=_FIRST_STABLE, description="First steps, with a plain all-reduce; all are warm-ups."),
]
_Wire = Annotated[
    Literal["fp16", "bf16"] | None,
    Meta(
        description="Reduce a bucket in this format: PyTorch's"
        " fp16_compress_wrapper or bf16_compress_wrapper. null: the format of the gradients."
    ),
]


class DdpOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Arguments of ``DistributedDataParallel``; the defaults are PyTorch's own."""

    bucket_cap_mb: Annotated[
        float, Meta(gt=0, le=1e6, description="Size of a gradient bucket, MiB (PyTorch: 25).")
    ] = 25
    broadcast_buffers: Annotated[
        bool, Meta(description="Broadcast rank 0's buffers (BatchNorm statistics) every forward.")
    ] = True
    gradient_as_bucket_view: Annotated[
        bool, Meta(description="Let gradients be views into the buckets: saves one copy.")
    ] = False
    static_graph: Annotated[
        bool, Meta(description="State that the graph is the same in every step.")
    ] = False
    find_unused_parameters: Annotated[
        bool, Meta(description="Search the graph for parameters without a gradient.")
    ] = False


class FsdpOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Arguments of ``fully_shard`` (FSDP2); the defaults are PyTorch's own."""

    wrap: Annotated[
        Literal["block", "model"],
        Meta(
            description="The parameters that are gathered together: each block that the workload"
            " names, and the rest; or the whole model."
        ),
    ] = "block"
    reshard_after_forward: Annotated[
        bool,
        Meta(
            description="Free a block's parameters after its forward, and gather them again for"
            " its backward (ZeRO-3); false: keep them until then (ZeRO-2)."
        ),
    ] = True
    cpu_offload: Annotated[
        bool, Meta(description="Keep shards, gradients and optimizer in the host's memory.")
    ] = False
    replicate: Annotated[
        Literal["nodes"] | None,
        Meta(
            description="nodes: shard within a node, and keep a copy on each node (HSDP), so that"
            " only gradients cross nodes; on one node this changes nothing. null: shard over all"
            " ranks."
        ),
    ] = None


class CommHook(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind"):
    """A communication hook, which replaces DDP's all-reduce of a full bucket of gradients."""

    @property
    def kind(self) -> str:
        return str(self.__struct_config__.tag)


class Fp16Hook(CommHook, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="fp16"):
    """All-reduce in float16: half the bytes."""


class Bf16Hook(CommHook, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="bf16"):
    """All-reduce in bfloat16: half the bytes."""


class PowerSgdHook(CommHook, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="powersgd"):
    """Low-rank approximation with error feedback (Vogels et al. 2019, arXiv:1905.13727)."""

    rank: Annotated[int, Meta(ge=1, description="Rank of the approximation.")] = 1
    start_step: _StartStep = _FIRST_STABLE
    wire: _Wire = None


class TopKHook(CommHook, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="topk"):
    """Top-K: only the largest values of a bucket are sent (Lin et al. 2017, arXiv:1712.01887)."""

    ratio: Annotated[Ratio, Meta(description="Share of the values of a bucket that are sent.")] = (
        0.01
    )
    start_step: _StartStep = _FIRST_STABLE


class HierarchicalHook(
    CommHook, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="hierarchical"
):
    """Reduce-scatter within a group, all-reduce between groups, all-gather within."""

    group_size: _GroupSize
    ratio: Annotated[
        Ratio | None,
        Meta(
            description="Share of the values that are sent between groups, the largest ones, as"
            " hook topk does; null: an all-reduce of all values."
        ),
    ] = None
    wire: _Wire = None

    @property
    def start_step(self) -> int:
        """The first step that differs from a plain all-reduce. Top-K keeps state of a bucket."""
        return 0 if self.ratio is None else _FIRST_STABLE


class PostLocalSgdHook(
    CommHook, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="post_local_sgd"
):
    """Post-local SGD: gradients are averaged within a group, parameters over all ranks at times.

    Source: Lin et al. 2018, arXiv:1808.07217.
    """

    group_size: _GroupSize
    period: Annotated[int, Meta(ge=2, description="Steps between two averages of all ranks.")] = 4
    start_step: _StartStep = _FIRST_STABLE


AnyCommHook = Fp16Hook | Bf16Hook | PowerSgdHook | TopKHook | HierarchicalHook | PostLocalSgdHook


def changed_options(options: msgspec.Struct) -> dict[str, bool | int | float | str]:
    """Return the fields that differ from their default or have none, by name."""
    return {
        field.name: getattr(options, field.name)
        for field in msgspec.structs.fields(type(options))
        if getattr(options, field.name) != field.default
    }
