"""The cases of a suite: its matrix of sizes with its techniques, and the core of every night."""

from __future__ import annotations

import fnmatch
import itertools
import re
from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec

from ddp_perf.config.suite import (
    NAME_PATTERN,
    AnySuite,
    CollectivesSuite,
    GlobalBatches,
    ScriptSuite,
    Suite,
    collective_cases,
    layout_name,
    node_count,
    script_cases,
)
from ddp_perf.config.yaml_file import describe_error
from ddp_perf.core.case import Case, CostOptions, TrainingOptions, with_training
from ddp_perf.core.strategy import AnyCommHook, Strategy, changed_options
from ddp_perf.errors import ConfigError, nearest_or_all

# Techniques: named changes of a suite's options, each with cases of its own beside the base.


# The fields that a technique may have: those of a suite, and the one hook in place of a list.
OPTIONS = (
    "strategy",
    "ddp",
    "fsdp",
    "comm_hook",
    "precision",
    "gradient_accumulation",
    "activation_checkpointing",
    "compile",
    "cuda_graphs",
    "cudnn_benchmark",
    "data",
    "env",
)
_OF_A_STRATEGY = ("ddp", "fsdp", "comm_hooks")  # another strategy has none of these

_Suite = TypeVar("_Suite", bound=msgspec.Struct)


def with_technique(suite: _Suite, name: str, changes: Any) -> _Suite:
    """Return the suite, which trains, with the changes of one technique and no other technique.

    The fields of a table, such as ``ddp``, replace those of the suite one by one. If the strategy
    is another one, the suite's options of its own strategy are left out. Raises ConfigError, with
    the name of the technique and the field.
    """
    _check_names(name, changes)
    fields: dict[str, Any] = msgspec.to_builtins(suite)
    if changes.get("strategy", fields["strategy"]) != fields["strategy"]:
        for option in _OF_A_STRATEGY:
            fields.pop(option)
    hooks = fields.get("comm_hooks", [None])[:1]
    changed = {
        **fields,
        "techniques": {},
        "comm_hooks": [changes["comm_hook"]] if "comm_hook" in changes else hooks,
        **{
            option: _merged(fields.get(option), value)
            for option, value in changes.items()
            if option != "comm_hook"
        },
    }
    try:
        return msgspec.convert(changed, type(suite))
    except msgspec.ValidationError as error:
        text = describe_error(error, type(suite), changed, prefix=f"techniques.{name}")
        raise ConfigError(text.replace("comm_hooks[0]", "comm_hook")) from None


def _check_names(name: str, changes: Any) -> None:
    if not re.fullmatch(NAME_PATTERN, name):
        raise ConfigError(
            f"techniques: {name!r} becomes a part of ids; use letters, digits, dot, dash and"
            " underscore"
        )
    if not isinstance(changes, dict):
        raise ConfigError(f"techniques.{name}: expected a table of fields, as in precision: bf16")
    for option in changes:
        if option not in OPTIONS:
            raise ConfigError(
                f"techniques.{name}.{option}: unknown field{nearest_or_all(option, OPTIONS)}"
            )


def _merged(of_suite: Any, value: Any) -> Any:
    if isinstance(of_suite, dict) and isinstance(value, dict):
        return {**of_suite, **value}
    return value


# The cases of a suite: its matrix of batch and world sizes, with its hooks and techniques.


class Variant(msgspec.Struct, frozen=True, kw_only=True):
    """A suite after the overrides of the command line, with its differences from the file."""

    suite: AnySuite
    env: dict[str, str] = {}
    suffix: str = ""  # the overrides, as in "-A=1"
    swept: dict[str, str] = {}  # the variables of the command line, whose values are swept
    first: Variant | None = None  # the variant with the first value of each sweep; None: this one
    technique: str | None = None
    plain: Suite | None = None  # the suite without the technique
    ranks_per_node: int | None = None  # a case of more ranks has several nodes; None: one node


def cases_of(variant: Variant) -> list[Case]:
    """Return the cases of the matrix, ordered by batch size, then world size."""
    suite = variant.suite
    if isinstance(suite, CollectivesSuite):
        env = {**suite.env, **variant.env}
        return collective_cases(suite, env, variant.suffix, variant.ranks_per_node)
    if isinstance(suite, ScriptSuite):
        cases, first = _script_cases(variant), _script_cases(variant.first or variant)
        return [
            _with_base(case, before, variant) for case, before in zip(cases, first, strict=True)
        ]
    world_sizes = sorted(suite.world_sizes)
    return [
        case
        for batch, world_size in itertools.product(_batches(suite), world_sizes)
        for case in _compared(suite, variant, world_size, batch)
    ]


def _script_cases(variant: Variant) -> list[Case]:
    suite = variant.suite
    assert isinstance(suite, ScriptSuite)
    suite = msgspec.structs.replace(suite, env={**suite.env, **variant.env})
    return script_cases(suite, variant.suffix, variant.ranks_per_node)


class _Batch(msgspec.Struct, frozen=True):
    """One batch size of a suite: of each rank, or of all ranks."""

    size: int
    is_global: bool

    @property
    def name(self) -> str:
        """The part of a case's id: ``b8`` for each rank, ``g32`` for all."""
        return f"{'g' if self.is_global else 'b'}{self.size}"

    def per_rank(self, world_size: int, micro_steps: int) -> int:
        """Return the batch of each rank and micro-step; `constraints` checks that it is whole."""
        return self.size // (world_size * micro_steps) if self.is_global else self.size


def _batches(suite: Suite) -> list[_Batch]:
    if isinstance(suite.batch_sizes, GlobalBatches):
        return [_Batch(size, True) for size in suite.batch_sizes.sizes]
    return [_Batch(size, False) for size in suite.batch_sizes]


def _compared(suite: Suite, variant: Variant, world_size: int, batch: _Batch) -> list[Case]:
    """Return the cases of one point of the matrix: the base, then each hook and technique.

    One that does the same work as the base is left out. That of one rank has no hook, for example.
    """
    hook, *hooks = suite.comm_hooks
    base = _case(suite, variant, world_size, batch, hook)
    found = {hook_name(other): _case(suite, variant, world_size, batch, other) for other in hooks}
    for name, changes in suite.techniques.items():
        changed = with_technique(suite, name, changes)
        own = msgspec.structs.replace(variant, suite=changed, technique=name, plain=suite)
        found[name] = _case(changed, own, world_size, batch, changed.comm_hooks[0])
    singles = {}
    if base.single is not None:
        singles = {case.technique: case.id for case in _compared(suite, variant, 1, batch)}
    others = [
        msgspec.structs.replace(
            case, base=base.id, technique=name, single=singles.get(name, base.single)
        )
        for name, case in found.items()
        if _effective(case).work() != _effective(base).work()
    ]
    before = _case(suite, variant.first or variant, world_size, batch, hook)
    return [_with_base(base, before, variant), *others]


def _effective(case: Case) -> Case:
    """Return the case without the option that only several nodes have an effect of."""
    if case.training.fsdp is None or case.replicates:
        return case
    fsdp = msgspec.structs.replace(case.training.fsdp, replicate=None)
    return with_training(case, fsdp=fsdp)


def _with_base(case: Case, before: Case, variant: Variant) -> Case:
    """Return a case of a variant, compared with that of the first swept values."""
    first = variant.first
    if first is None:
        return case
    swept = [f"{name}={v}" for name, v in variant.swept.items() if first.swept.get(name) != v]
    return msgspec.structs.replace(case, base=before.id, technique=" ".join(swept))


def hook_name(hook: AnyCommHook | None) -> str:
    """Return the name of a hook among those of a suite, as it is in the ids."""
    return "all-reduce" if hook is None else "-".join([hook.kind, *_values(hook)])


def _case(
    suite: Suite, variant: Variant, world_size: int, batch: _Batch, hook: AnyCommHook | None
) -> Case:
    strategy = _strategy(suite, world_size)
    has_single = world_size > 1 and 1 in suite.world_sizes
    return Case(
        id=_case_id(suite, variant, world_size, batch, hook),
        suite=suite.suite,
        tier=suite.tier,
        workload=suite.workload,
        strategy=strategy,
        precision=suite.precision,
        training=TrainingOptions(
            model=suite.model,
            data=suite.data,
            ddp=suite.ddp if strategy == "ddp" else None,
            fsdp=suite.fsdp if strategy == "fsdp" else None,
            comm_hook=hook if strategy == "ddp" else None,
            gradient_accumulation=suite.gradient_accumulation,
            activation_checkpointing=suite.activation_checkpointing,
            compile=suite.compile,
            cuda_graphs=suite.cuda_graphs,
            cudnn_benchmark=suite.cudnn_benchmark,
        ),
        world_size=world_size,
        nodes=node_count(world_size, variant.ranks_per_node),
        batch_size=batch.per_rank(world_size, suite.gradient_accumulation),
        global_batch=batch.size if batch.is_global else None,
        env={**suite.env, **variant.env},
        launcher=suite.launcher,
        schedule=suite.schedule(),
        tolerances=suite.tolerances,
        single=_case_id(suite, variant, 1, batch, hook) if has_single else None,
        cost=CostOptions(
            price_per_gpu_hour=suite.price_per_gpu_hour, epoch_samples=suite.epoch_samples
        ),
    )


def _case_id(
    suite: Suite, variant: Variant, world_size: int, batch: _Batch, hook: AnyCommHook | None
) -> str:
    strategy = _strategy(suite, world_size)
    parts = [
        suite.workload.replace(":", "."),
        strategy,
        suite.precision,
        layout_name(world_size, node_count(world_size, variant.ranks_per_node)),
        batch.name,
        *_untouched(_option_names(suite, strategy, hook), variant),
        *filter(None, [suite.variant, variant.technique]),
    ]
    return "-".join(parts) + variant.suffix


def _untouched(names: list[str], variant: Variant) -> list[str]:
    """Return the names of the options that the technique does not change: it names the others."""
    if variant.plain is None:
        return names
    plain = variant.plain
    kept = _option_names(plain, plain.strategy, plain.comm_hooks[0])
    return [name for name in names if name in kept]


def _option_names(suite: Suite, strategy: Strategy, hook: AnyCommHook | None) -> list[str]:
    """Return the case's options that differ from the defaults: ``topk``, ``ratio=0.1``."""
    names = []
    if strategy == "fsdp":
        names += _values(suite.fsdp)
    if strategy == "ddp" and hook is not None:
        names += [hook.kind, *_values(hook)]
    if suite.gradient_accumulation > 1:
        names.append(f"accumulate{suite.gradient_accumulation}")
    if suite.activation_checkpointing:
        names.append("checkpoint")
    names += [
        name for name in ("compile", "cuda_graphs", "cudnn_benchmark") if getattr(suite, name)
    ]
    return names


def _values(options: msgspec.Struct) -> list[str]:
    return [f"{name}={value}".lower() for name, value in changed_options(options).items()]


def _strategy(suite: Suite, world_size: int) -> Strategy:
    """Return the strategy: none for one rank, unless scaling is measured against DDP on it."""
    return "none" if world_size == 1 and suite.denominator == "no-ddp" else suite.strategy


# The field ``core`` of a suite file: patterns of the ids of the cases that every night gates.


def with_core(case: Case, variant: Variant) -> Case:
    """Return the case with the patterns of its suite that match its id, as the file gives it."""
    patterns = variant.suite.core
    if patterns is None:
        return case
    name = case.id.removesuffix(variant.suffix)
    return msgspec.structs.replace(case, core=_matching(name, patterns))


def check_core(patterns: Sequence[str] | None, cases: Sequence[Case]) -> None:
    """Raise ConfigError for the first pattern that matches no case of the suite."""
    ids = [case.id for case in cases]
    for place, pattern in enumerate(patterns or ()):
        if not fnmatch.filter(ids, pattern):
            raise ConfigError(
                f"core[{place}]: {pattern!r} matches no case{nearest_or_all(pattern, ids)}"
            )


def _matching(name: str, patterns: Sequence[str]) -> tuple[str, ...]:
    return tuple(pattern for pattern in patterns if fnmatch.fnmatchcase(name, pattern))
