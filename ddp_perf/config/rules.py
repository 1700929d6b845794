"""Options that cannot be combined, since torch, gloo or arithmetic refuses them.

All other combinations were tested, and they work. Missing hardware is not treated here: see
``obstacle`` in ``ddp_perf.system.capacity``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ddp_perf.config.suite import GlobalBatches, Suite
from ddp_perf.core.strategy import LEAST_COMPILED_BUCKET_MB, DdpOptions, FsdpOptions
from ddp_perf.errors import ConfigError
from ddp_perf.render.units import counted


def check_constraints(suite: Suite) -> None:
    """Raise ConfigError for the first options that exclude each other, with field and remedy."""
    for rule in _RULES:
        for refusal in rule(suite):
            raise ConfigError(refusal)


def _of_another_strategy(suite: Suite) -> Iterator[str]:
    given = {
        "ddp": suite.ddp != DdpOptions(),
        "fsdp": suite.fsdp != FsdpOptions(),
    }
    for name, is_given in given.items():
        if is_given and suite.strategy != name:
            yield (
                f"{name}: these are options of strategy {name}, but the strategy is"
                f" {suite.strategy}"
            )
    if any(suite.comm_hooks) and suite.strategy != "ddp":
        yield f"comm_hooks: only DDP has communication hooks, but the strategy is {suite.strategy}"


def _alone(suite: Suite) -> Iterator[str]:
    if suite.strategy == "none" and max(suite.world_sizes) > 1:
        yield (
            f"strategy: none synchronises nothing, so {max(suite.world_sizes)} ranks would train"
            " apart; keep world_sizes: [1], or choose ddp or fsdp"
        )


def _of_gpus(suite: Suite) -> Iterator[str]:
    if suite.tier == "gpu":
        return
    if suite.precision == "tf32":
        yield "precision: tf32 is a format of GPUs; choose fp32, bf16 or fp16 for tier cpu"
    if suite.tolerances.energy is not None:
        yield "tolerances.energy: only GPUs count their energy; remove it from tier cpu"
    for name in ("cuda_graphs", "cudnn_benchmark"):
        if getattr(suite, name):
            yield f"{name}: this is an option of GPUs; remove it, or use tier: gpu"


def _captured(suite: Suite) -> Iterator[str]:
    """Yield the options that a CUDA graph excludes: they need the host in each step."""
    clashes = {
        "strategy: fsdp": suite.strategy == "fsdp",
        "comm_hooks": any(suite.comm_hooks),
        "data.num_workers": suite.data.num_workers is not None,
        "ddp.find_unused_parameters": suite.ddp.find_unused_parameters,
        "activation_checkpointing": suite.activation_checkpointing,
        "compile": suite.compile,
    }
    for name, is_given in clashes.items():
        if suite.cuda_graphs and is_given:
            yield f"cuda_graphs: a step with {name} cannot be captured; remove one of them"


def _compiled_buckets(suite: Suite) -> Iterator[str]:
    cap = suite.ddp.bucket_cap_mb
    if suite.compile and suite.strategy == "ddp" and cap < LEAST_COMPILED_BUCKET_MB:
        yield (
            "ddp.bucket_cap_mb: torch.compile cannot split a model at buckets under"
            f" {LEAST_COMPILED_BUCKET_MB} MiB (got {cap:g}); make them larger, or set compile:"
            " false"
        )


def _groups(suite: Suite) -> Iterator[str]:
    for hook in suite.comm_hooks:
        size = getattr(hook, "group_size", 1)
        if size == "node":
            continue  # the ranks of the nodes divide those of the case
        for world_size in suite.world_sizes:
            if world_size % size and (world_size > 1 or suite.denominator == "ddp-1"):
                yield (
                    f"comm_hooks: groups of {size} ranks do not divide {world_size};"
                    " choose another group_size or world size"
                )


def _mixed_steps(suite: Suite) -> Iterator[str]:
    for hook in suite.comm_hooks:
        start_step = getattr(hook, "start_step", 0)
        if hook is not None and start_step > suite.warmup:
            yield (
                f"comm_hooks: {hook.kind} starts with step {start_step}, after {suite.warmup}"
                f" warm-ups: measured steps would be of two kinds; set warmup to {start_step} or"
                " more"
            )


def _divided_batches(suite: Suite) -> Iterator[str]:
    if not isinstance(suite.batch_sizes, GlobalBatches):
        return
    for size in suite.batch_sizes.sizes:
        for ranks in suite.world_sizes:
            parts = ranks * suite.gradient_accumulation
            if size % parts:
                steps = suite.gradient_accumulation
                each = f" with {steps} micro-steps" if steps > 1 else ""
                lower = size // parts * parts
                nearest = f"{lower} or {lower + parts}" if lower else str(parts)
                yield (
                    f"batch_sizes.global: {counted(ranks, 'rank')}{each} cannot share {size}"
                    f" samples evenly; take {nearest}, or leave that world size out"
                )


_RULES: tuple[Callable[[Suite], Iterator[str]], ...] = (
    _of_another_strategy,
    _alone,
    _of_gpus,
    _captured,
    _compiled_buckets,
    _groups,
    _mixed_steps,
    _divided_batches,
)
