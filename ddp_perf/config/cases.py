"""The cases of a suite: its matrix of sizes with its techniques, and the core of every night."""

from __future__ import annotations

import fnmatch
import functools
import itertools
import posixpath
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from ddp_perf.config.formula import filled, result_of, sizes_in
from ddp_perf.config.network import parse_network
from ddp_perf.config.suite import (
    NAME_PATTERN,
    CollectivesSuite,
    Experiment,
    GlobalBatches,
    ScriptSuite,
    Suite,
    TrainingSuite,
    as_name,
)
from ddp_perf.config.yaml_file import describe_error
from ddp_perf.core.case import (
    Case,
    CostOptions,
    Schedule,
    Tolerances,
    TrainingOptions,
    emulated,
    with_training,
)
from ddp_perf.core.strategy import AnyCommHook, Strategy, changed_options
from ddp_perf.core.subject import (
    CollectiveKind,
    CollectiveStep,
    ScriptRun,
    calls_of,
    parse_size,
    size_text,
)
from ddp_perf.errors import ConfigError, nearest_or_all

# Techniques: named changes of a suite's options, each with cases of its own beside the base.


_Suite = TypeVar("_Suite", bound=Experiment)
OPTIONS = (  # that a technique may change: fields of the suite, and one hook in place of a list
    *("strategy", "ddp", "fsdp", "comm_hook", "precision", "gradient_accumulation"),
    *("activation_checkpointing", "compile", "cuda_graphs", "cudnn_benchmark", "data", "env"),
)
_STRATEGIES = {"ddp": "ddp", "fsdp": "fsdp", "comm_hook": "ddp"}  # that have these options


def options_of(suite: Experiment) -> tuple[str, ...]:
    """Return what may be changed in a suite: a script and a collective have variables only."""
    return OPTIONS if isinstance(suite, TrainingSuite) else ("env",)


def with_technique(suite: _Suite, name: str, changes: Any) -> _Suite:
    """Return the suite with the changes of one technique and no other technique.

    The fields of a table, such as ``ddp``, replace those of the suite one by one. If the strategy
    is another one, the suite's options of its own strategy are left out. Raises ConfigError, with
    the name of the technique and the field.
    """
    if not re.fullmatch(NAME_PATTERN, name):
        raise ConfigError(
            f"techniques: {name!r} becomes a part of ids; use letters, digits, dot, dash and"
            " underscore"
        )
    if not isinstance(changes, dict):
        raise ConfigError(f"techniques.{name}: expected a table of fields, as in precision: bf16")
    for option in [option for option in changes if option not in options_of(suite)]:
        hint = nearest_or_all(option, options_of(suite))
        raise ConfigError(f"techniques.{name}.{option}: unknown field{hint}")
    fields: dict[str, Any] = msgspec.to_builtins(suite)
    if isinstance(suite, TrainingSuite):
        if changes.get("strategy", suite.strategy) != suite.strategy:
            fields |= {"ddp": {}, "fsdp": {}, "comm_hooks": [None]}
        hooks = [changes.get("comm_hook", fields["comm_hooks"][0])]
        fields |= {"techniques": {}, "comm_hooks": hooks}
    for option in changes.keys() - {"comm_hook"}:
        old, new = fields[option], changes[option]
        fields[option] = {**old, **new} if isinstance(old, dict) and isinstance(new, dict) else new
    try:
        return msgspec.convert(fields, type(suite))
    except msgspec.ValidationError as error:
        text = describe_error(error, type(suite), fields, prefix=f"techniques.{name}")
        raise ConfigError(text.replace("comm_hooks[0]", "comm_hook")) from None


def settings_of(suite: _Suite) -> dict[str | None, _Suite]:
    """Return the suite with its own setting only (None), and with each other hook and technique."""
    hooks, techniques = getattr(suite, "comm_hooks", ()), getattr(suite, "techniques", {})
    own = msgspec.structs.replace(suite, techniques={}, comm_hooks=hooks[:1]) if hooks else suite
    return {
        None: own,
        **{hook_name(hook): msgspec.structs.replace(own, comm_hooks=(hook,)) for hook in hooks[1:]},
        **{name: with_technique(suite, name, changes) for name, changes in techniques.items()},
    }


def hook_name(hook: AnyCommHook | None) -> str:
    """Return the name of a hook among those of a suite, as it is in the ids."""
    return "all-reduce" if hook is None else "-".join([hook.kind, *_values(hook)])


def _values(options: msgspec.Struct) -> list[str]:
    return [f"{name}={value}".lower() for name, value in changed_options(options).items()]


# The cases of a suite: its matrix of sizes, with the hooks and techniques of a training.


class Variant(msgspec.Struct, frozen=True, kw_only=True):
    """A suite after the overrides of the command line, with its differences from the file."""

    suite: Suite
    env: dict[str, str] = {}
    suffix: str = ""  # the overrides, as in "-A=1"
    first: Variant | None = None  # the variant with the first value of each sweep; None: this one
    ranks_per_node: int | None = None  # a case of more ranks has several nodes; None: one node

    def nodes(self, world_size: int) -> int:
        """Return the nodes of a case, which fills its first node before it has a second one."""
        return 1 if self.ranks_per_node is None else max(1, world_size // self.ranks_per_node)


def cases_of(variant: Variant) -> list[Case]:
    """Return the cases of the matrix, ordered by batch size or payload, then world size.

    Raises ConfigError for a formula of a script that has no result.
    """
    ranks = sorted(variant.suite.world_sizes)
    match variant.suite:
        case CollectivesSuite() as suite:
            calls = itertools.product(suite.collectives, sorted(map(parse_size, suite.sizes)))
            return [_collective_case(suite, variant, n, *call) for call in calls for n in ranks]
        case ScriptSuite() as suite:
            sizes, make = suite.batch_sizes, functools.partial(_script_cases, suite)
        case TrainingSuite() as suite:
            sizes, make = suite.sizes, functools.partial(_training_cases, suite)
    rows = [
        [
            *(case for n in ranks for case in make(variant, n, size)),
            *_emulated_cases(variant, size, make),
        ]
        for size in sizes
    ]
    return [_linked(case, row, variant) for row in rows for case in row]


def _linked(case: Case, row: Sequence[Case], variant: Variant) -> Case:
    """Return a case with the ids of those that it is compared with: one rank, and swept values.

    ``row`` has the cases of its size.
    """
    ones = {other.technique: other.id for other in row if other.world_size == 1}
    if case.world_size > 1:
        case = msgspec.structs.replace(case, single=ones.get(case.technique, ones.get(None)))
    if variant.first is None or case.base is not None:
        return case
    base = case.id.removesuffix(variant.suffix) + variant.first.suffix
    before = variant.first.env
    swept = " ".join(f"{name}={v}" for name, v in variant.env.items() if before[name] != v)
    return msgspec.structs.replace(case, base=base, technique=swept)


def _case(
    variant: Variant, world_size: int, *, name: str, parts: Sequence[str], **of_subject: Any
) -> Case:
    """Return a case with what any suite states, whose id has these parts beside its ranks.

    They are written as in ``ws8``, or ``ws16-2x8`` on two nodes with 8 ranks each.
    """
    suite, nodes = variant.suite, variant.nodes(world_size)
    layout = f"ws{world_size}" + (f"-{nodes}x{world_size // nodes}" if nodes > 1 else "")
    return Case(
        id="-".join(filter(None, [name, layout, *parts])) + variant.suffix,
        suite=suite.suite,
        tier=suite.tier,
        world_size=world_size,
        nodes=nodes,
        launcher=suite.launcher,
        schedule=Schedule(**{name: getattr(suite, name) for name in Schedule.__struct_fields__}),
        single=None,
        **of_subject,
    )


def _collective_case(
    suite: CollectivesSuite, variant: Variant, world_size: int, kind: CollectiveKind, payload: int
) -> Case:
    gated = msgspec.structs.asdict(suite.tolerances)
    return _case(
        variant,
        world_size,
        name=kind,
        parts=[size_text(payload), suite.variant],
        workload=kind,
        collective=CollectiveStep(kind=kind, payload=payload, calls=calls_of(payload)),
        strategy="none",
        precision="fp32",
        batch_size=None,
        env={**suite.env, **variant.env},
        tolerances=Tolerances(**gated, cpu_time=None, efficiency=None, peak_memory=None),
    )


def _script_cases(
    suite: ScriptSuite, variant: Variant, world_size: int, batch_size: int
) -> list[Case]:
    env = {**suite.env, **variant.env}
    run = script_run(msgspec.structs.replace(suite, env=env), world_size, batch_size)
    case = _case(
        variant,
        world_size,
        name=as_name(run.name),
        parts=[f"b{batch_size}", suite.variant],
        workload=run.script,
        script=run,
        strategy="script",
        precision=None,
        batch_size=batch_size,
        env=filled_env(env, world_size, batch_size),
        tolerances=Tolerances(**msgspec.structs.asdict(suite.tolerances)),
    )
    return [case]


def script_run(suite: ScriptSuite, world_size: int, batch_size: int) -> ScriptRun:
    """Return the run of a suite's script with these sizes. Raises ConfigError for its formulas."""
    sizes = {"world_size": world_size, "batch_size": batch_size}
    any_ranks = {**sizes, "world_size": "{world_size}"}
    return ScriptRun(
        script=posixpath.normpath(suite.script),  # ./train.py is train.py
        args=_filled_args(suite, sizes),
        args_of_any_ranks=_filled_args(suite, any_ranks),
        env_of_any_ranks=tuple(
            (name, filled(f"env.{name}", text, any_ranks))
            for name, text in suite.env.items()
            if "world_size" in sizes_in(text)
        ),
        samples=result_of("samples_per_step", str(suite.samples_per_step), sizes),
        steps_by=suite.steps_by,
        scratch=suite.scratch,
    )


def _filled_args(suite: ScriptSuite, sizes: Mapping[str, object]) -> tuple[str, ...]:
    return tuple(filled(f"args[{i}]", text, sizes) for i, text in enumerate(suite.args))


def filled_env(env: Mapping[str, str], world_size: int, batch_size: int) -> dict[str, str]:
    """Return the variables of a script's ranks with these sizes. Raises ConfigError."""
    sizes = {"world_size": world_size, "batch_size": batch_size}
    return {name: filled(f"env.{name}", text, sizes) for name, text in env.items()}


def _training_cases(
    suite: TrainingSuite, variant: Variant, world_size: int, size: int
) -> list[Case]:
    """Return the cases of one point of the matrix: the base, then each hook and technique.

    One that does the same work as the base is left out. That of one rank has no hook, for example.
    """
    cases: dict[str | None, Case] = {}
    for name, changed in settings_of(suite).items():
        technique = name if name in suite.techniques else None
        cases[name] = _training_case(changed, variant, world_size, size, technique, suite)
    base = cases.pop(None)
    others = [
        msgspec.structs.replace(case, base=base.id, technique=name)
        for name, case in cases.items()
        if _effective(case).work() != _effective(base).work()
    ]
    return [base, *others]


def _emulated_cases(
    variant: Variant, size: int, make: Callable[[Variant, int, int], list[Case]]
) -> Iterator[Case]:
    """Yield the cases of one size of which one rank runs, over the network of the suite."""
    for world_size in sorted(variant.suite.emulated):
        assert variant.suite.network is not None  # the rules require one
        network = parse_network(variant.suite.network, "network:")
        per_node = network.gpus_per_node
        is_even = per_node is not None and world_size % per_node == 0
        placed = msgspec.structs.replace(variant, ranks_per_node=per_node if is_even else None)
        for case in make(placed, world_size, size):
            yield emulated(case, network.text)


def _effective(case: Case) -> Case:
    """Return the case without the option that only several nodes have an effect of."""
    if case.training.fsdp is None or case.replicates:
        return case
    fsdp = msgspec.structs.replace(case.training.fsdp, replicate=None)
    return with_training(case, fsdp=fsdp)


def _training_case(
    suite: TrainingSuite,
    variant: Variant,
    world_size: int,
    size: int,
    technique: str | None,
    plain: TrainingSuite,
) -> Case:
    """Return a case with the suite's hook; ``plain`` is the suite without the technique."""
    is_plain = world_size == 1 and suite.denominator == "no-ddp"
    strategy = "none" if is_plain else suite.strategy
    is_global = isinstance(suite.batch_sizes, GlobalBatches)
    parts = world_size * suite.gradient_accumulation  # of a global batch; they divide it
    options = {**msgspec.structs.asdict(suite), "comm_hook": suite.comm_hooks[0]}
    names = _option_names(suite, strategy)
    if technique is not None:  # it names the others
        names = [name for name in names if name in _option_names(plain, plain.strategy)]
    return _case(
        variant,
        world_size,
        name=f"{suite.workload.replace(':', '.')}-{strategy}-{suite.precision}",
        parts=[f"{'g' if is_global else 'b'}{size}", *names, suite.variant, technique or ""],
        workload=suite.workload,
        strategy=strategy,
        precision=suite.precision,
        training=TrainingOptions(
            **{
                name: options[name]
                for name in TrainingOptions.__struct_fields__
                if _STRATEGIES.get(name, strategy) == strategy
            }
        ),
        batch_size=size // parts if is_global else size,
        global_batch=size if is_global else None,
        env={**suite.env, **variant.env},
        tolerances=suite.tolerances,
        cost=CostOptions(
            price_per_gpu_hour=suite.price_per_gpu_hour, epoch_samples=suite.epoch_samples
        ),
    )


def _option_names(suite: TrainingSuite, strategy: Strategy) -> list[str]:
    """Return the case's options that differ from the defaults: ``topk``, ``ratio=0.1``."""
    hook = suite.comm_hooks[0]
    names = _values(suite.fsdp) if strategy == "fsdp" else []
    if strategy == "ddp" and hook is not None:
        names += [hook.kind, *_values(hook)]
    if suite.gradient_accumulation > 1:
        names.append(f"accumulate{suite.gradient_accumulation}")
    if suite.activation_checkpointing:
        names.append("checkpoint")
    switches = ("compile", "cuda_graphs", "cudnn_benchmark")
    return names + [name for name in switches if getattr(suite, name)]


# The field ``core`` of a suite file: patterns of the ids of the cases that every night gates.


def with_core(case: Case, variant: Variant) -> Case:
    """Return the case with the patterns of its suite that match its id, as the file gives it."""
    if variant.suite.core is None:
        return case
    name = case.id.removesuffix(variant.suffix)
    core = tuple(each for each in variant.suite.core if fnmatch.fnmatchcase(name, each))
    return msgspec.structs.replace(case, core=core)


def check_core(patterns: Sequence[str] | None, cases: Sequence[Case]) -> None:
    """Raise ConfigError for the first pattern that matches no case of the suite."""
    ids = [case.id for case in cases]
    for place, pattern in enumerate(patterns or ()):
        if not fnmatch.filter(ids, pattern):
            raise ConfigError(
                f"core[{place}]: {pattern!r} matches no case{nearest_or_all(pattern, ids)}"
            )
