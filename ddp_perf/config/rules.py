"""The rules of suite files: what cannot be combined, in one table, with field and remedy.

All other combinations were tested, and they work. Missing hardware is not treated here: see
``obstacle`` in ``ddp_perf.system.capacity``; nor is what must exist in the user's project.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from ddp_perf.config.cases import filled_env, hook_name, script_run, with_technique
from ddp_perf.config.network import NETWORK_FORM, parse_network
from ddp_perf.config.suite import (
    CollectivesSuite,
    GlobalBatches,
    ScriptSuite,
    Suite,
    TrainingSuite,
    takes_batch_size,
)
from ddp_perf.core.secret import secret_in
from ddp_perf.core.strategy import LEAST_COMPILED_BUCKET_MB, DdpOptions, FsdpOptions
from ddp_perf.core.subject import FLOAT32, MODELS, has_texts, parse_size, size_text
from ddp_perf.errors import ConfigError
from ddp_perf.render.units import counted

# Suites of a workload: what torch, gloo or arithmetic refuses.


def _strategies(suite: TrainingSuite) -> Iterator[str]:
    given = {"ddp": suite.ddp != DdpOptions(), "fsdp": suite.fsdp != FsdpOptions()}
    for name, is_given in given.items():
        if is_given and suite.strategy != name:
            yield (
                f"{name}: these are options of strategy {name}, but the strategy is"
                f" {suite.strategy}"
            )
    if any(suite.comm_hooks) and suite.strategy != "ddp":
        yield f"comm_hooks: only DDP has communication hooks, but the strategy is {suite.strategy}"
    if suite.strategy == "none" and max(suite.world_sizes) > 1:
        yield (
            f"strategy: none synchronises nothing, so {max(suite.world_sizes)} ranks would train"
            " apart; keep world_sizes: [1], or choose ddp or fsdp"
        )


def _ranks(suite: TrainingSuite | ScriptSuite) -> list[int]:
    return [*suite.world_sizes, *suite.emulated]


def _of_gpus(suite: TrainingSuite | ScriptSuite) -> Iterator[str]:
    if suite.tier == "gpu":
        return
    if getattr(suite, "precision", None) == "tf32":
        yield "precision: tf32 is a format of GPUs; choose fp32, bf16 or fp16 for tier cpu"
    if suite.tolerances.energy is not None:
        yield "tolerances.energy: only GPUs count their energy; remove it from tier cpu"
    for name in ("cuda_graphs", "cudnn_benchmark"):
        if getattr(suite, name, False):
            yield f"{name}: this is an option of GPUs; remove it, or use tier: gpu"


def _compiled(suite: TrainingSuite) -> Iterator[str]:
    # A CUDA graph excludes what needs the host in each step.
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
    cap = suite.ddp.bucket_cap_mb
    if suite.compile and suite.strategy == "ddp" and cap < LEAST_COMPILED_BUCKET_MB:
        yield (
            "ddp.bucket_cap_mb: torch.compile cannot split a model at buckets under"
            f" {LEAST_COMPILED_BUCKET_MB} MiB (got {cap:g}); make them larger, or set compile:"
            " false"
        )


def _hooks(suite: TrainingSuite) -> Iterator[str]:
    for hook in suite.comm_hooks:
        size = getattr(hook, "group_size", 1)
        if size == "node":
            continue  # the ranks of the nodes divide those of the case
        for world_size in _ranks(suite):
            if world_size % size and (world_size > 1 or suite.denominator == "ddp-1"):
                yield (
                    f"comm_hooks: groups of {size} ranks do not divide {world_size};"
                    " choose another group_size or world size"
                )
    for hook in suite.comm_hooks:
        start_step = getattr(hook, "start_step", 0)
        if hook is not None and start_step > suite.warmup:
            yield (
                f"comm_hooks: {hook.kind} starts with step {start_step}, after {suite.warmup}"
                f" warm-ups: measured steps would be of two kinds; set warmup to {start_step} or"
                " more"
            )


def _divided_batches(suite: TrainingSuite) -> Iterator[str]:
    for size in suite.sizes if isinstance(suite.batch_sizes, GlobalBatches) else ():
        for ranks in _ranks(suite):
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


def _read_files(suite: TrainingSuite) -> Iterator[str]:
    if suite.data.source == "files" and not has_texts(suite.workload):
        readers = ", ".join(filter(has_texts, MODELS))
        yield f"data.source: only {readers} read files; set it to synthetic"


def _techniques(suite: TrainingSuite) -> Iterator[str]:
    for name, changes in suite.techniques.items():
        for refusal in _refusals(_OPTIONS, with_technique(suite, name, changes)):
            yield f"techniques.{name}: {refusal}"


def _idle_techniques(suite: TrainingSuite) -> Iterator[str]:
    base = with_technique(suite, "base", {})
    for name, changes in suite.techniques.items():
        if with_technique(suite, name, changes) == base:
            yield f"techniques.{name}: the suite has these options already; remove it"
        if name in map(hook_name, suite.comm_hooks):
            yield f"techniques.{name}: one of comm_hooks has this name; choose another one"


# Suites of a script, and of collectives.


_OF_WORKLOADS = set(TrainingSuite.__struct_fields__) - set(ScriptSuite.__struct_fields__)
_REASONS = {
    "techniques": "a script has no options that a suite could change; write a second suite file"
    " with other args and a variant",
    "price_per_gpu_hour": "only the suite of a workload has costs; remove it",
    "epoch_samples": "only the suite of a workload has epochs; remove it",
}


def check_script_fields(fields: Mapping[str, Any]) -> None:
    """Raise ConfigError for the first field that only the suite of a workload has."""
    for name in fields:
        if name in _OF_WORKLOADS:
            reason = _REASONS.get(name, "the script decides it; remove it, or set it by args")
            raise ConfigError(f"{name}: {reason}")
    tolerances = fields.get("tolerances")
    if isinstance(tolerances, Mapping) and "loss" in tolerances:
        raise ConfigError(
            "tolerances.loss: the losses of a script are not gated, as its seeds are its own;"
            " remove it"
        )


def _script(suite: ScriptSuite) -> Iterator[str]:
    if len(suite.batch_sizes) > 1 and not takes_batch_size(suite):
        yield (
            "batch_sizes: neither args nor env has {batch_size}, so all cases would be the same;"
            " add it, or keep one size"
        )
    if (secret := secret_in(suite.args)) is not None:
        yield (
            f"args: {secret} looks like a secret, which results and commands would have; let the"
            " script read a variable, which ranks inherit"
        )
    for world_size, batch_size in itertools.product(_ranks(suite), suite.batch_sizes):
        script_run(suite, world_size, batch_size)  # raises ConfigError, as does the next line
        filled_env(suite.env, world_size, batch_size)


def _collectives(suite: CollectivesSuite) -> Iterator[str]:
    if 1 in suite.world_sizes:
        yield "world_sizes: one rank has no other to exchange data with; take 2 or more"
    sizes = list(map(parse_size, suite.sizes))
    for size, world_size in itertools.product(sizes, suite.world_sizes):
        if sizes.count(size) > 1:
            yield f"sizes: {size_text(size)} is listed twice, so two cases have one id; remove one"
        if size % (FLOAT32 * world_size):
            yield (
                f"sizes: {size_text(size)} of float32 cannot be divided evenly among {world_size}"
                " ranks; choose another size or world size"
            )


# Any suite file, whose options the command line may change afterwards.


def _matrix(suite: Suite) -> Iterator[str]:
    if suite.warmup >= suite.steps:
        yield (
            f"warmup: {suite.warmup} warm-ups leave nothing to measure of {suite.steps} steps;"
            " steps counts the warm-ups too"
        )
    for field in ("world_sizes", "emulated", "batch_sizes", "comm_hooks", "collectives"):
        values = getattr(suite, field, ())
        if isinstance(values, GlobalBatches):
            field, values = f"{field}.global", values.sizes
        for value in values:
            if values.count(value) > 1:
                yield f"{field}: {value} is listed twice, so two cases have one id; remove one"


def _emulated(suite: Suite) -> Iterator[str]:
    if isinstance(suite, CollectivesSuite) and (suite.emulated or suite.network is not None):
        yield "emulated: collectives measure the link, which an emulated case models; remove it"
    if suite.network is not None:
        network = parse_network(suite.network, "network:")
        if suite.tier == "gpu" and network.busy_s_per_byte:
            yield "network: busy is CPU time of gloo, and NCCL takes none; leave it out"
        if not suite.emulated:
            yield (
                "network: it is that of emulated cases, and the suite has none; add emulated:"
                " [64], or remove it"
            )
    if not suite.emulated:
        return
    if suite.network is None:
        yield (
            "emulated: the links between the ranks are missing; add network: (a duel: --network)"
            f" {NETWORK_FORM}"
        )
    if 1 in suite.emulated:
        yield "emulated: one rank has no other; take 2 or more, and keep 1 in world_sizes"
    if not isinstance(suite, TrainingSuite):
        return
    if suite.strategy == "none":
        yield "emulated: strategy none has no collectives; choose ddp or fsdp"
    has_groups = any(getattr(hook, "group_size", None) == "node" for hook in suite.comm_hooks)
    if (has_groups or suite.fsdp.replicate is not None) and suite.network is not None:
        per_node = parse_network(suite.network, "network:").gpus_per_node
        for ranks in suite.emulated:
            if per_node is not None and ranks > per_node and ranks % per_node:
                yield (
                    f"emulated: {ranks} ranks do not fill nodes of {per_node}, which"
                    f" {'a hook' if has_groups else 'fsdp.replicate'} needs; choose another number"
                )


def check_options(suite: Suite) -> None:
    """Raise ConfigError for the first options that exclude each other, with field and remedy."""
    for refusal in _refusals(_OPTIONS, suite):
        raise ConfigError(refusal)


def check_suite(suite: Suite) -> None:
    """Raise ConfigError for the first fault of a file, which may be a list or an idle technique."""
    for refusal in _refusals(_FILE, suite):
        raise ConfigError(refusal)


def check_layout(world_sizes: Iterable[int], ranks_per_node: int | None) -> None:
    """Raise ConfigError for the first world size that would leave a node with fewer ranks."""
    for ranks in world_sizes:
        if ranks_per_node is not None and ranks > ranks_per_node and ranks % ranks_per_node:
            raise ConfigError(
                f"world_sizes: {counted(ranks, 'rank')} cannot share nodes of {ranks_per_node}"
                " ranks evenly; choose another --ddp-world-sizes or nproc_per_node of the cluster"
                " file"
            )


_Rules = tuple[tuple[Any, Callable[[Any], Iterator[str]]], ...]  # the suites, and what they break


def _refusals(rules: _Rules, suite: Suite) -> Iterator[str]:
    for suites, rule in rules:
        if isinstance(suite, suites):
            yield from rule(suite)


_OPTIONS: _Rules = (
    (Suite, _emulated),
    (TrainingSuite, _strategies),
    (TrainingSuite | ScriptSuite, _of_gpus),
    (TrainingSuite, _compiled),
    (TrainingSuite, _hooks),
    (TrainingSuite, _divided_batches),
    (TrainingSuite, _read_files),
    (TrainingSuite, _techniques),
    (ScriptSuite, _script),
    (CollectivesSuite, _collectives),
)
_FILE: _Rules = ((Suite, _matrix), *_OPTIONS, (TrainingSuite, _idle_techniques))
