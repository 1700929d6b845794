"""Suite files of scripts, which are measured as they are, over a matrix of sizes."""

from __future__ import annotations

import itertools
import posixpath
from collections.abc import Mapping
from typing import Annotated

import msgspec
from msgspec import Meta

from ddp_perf.config.common import Count, Experiment, as_name
from ddp_perf.config.formula import LONGEST_FORMULA, filled, result_of, sizes_in
from ddp_perf.config.layout import layout_name, node_count
from ddp_perf.core.case import Case, StepTolerances, Tolerances
from ddp_perf.core.script import BY_OPTIMIZER, ScriptRun


class ScriptTolerances(StepTolerances, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The change of each metric that is tolerated, as a fraction. null: not gated.

    Losses are not gated: the seeds of a script are its own.
    """


class ScriptSuite(Experiment, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A suite that runs a training script as it is, over a matrix of world and batch sizes."""

    script: Annotated[
        str,
        Meta(
            description="The script that each rank runs, from the root of the project on, as in"
            " train.py; or a module, as in package.train.",
            pattern=r"^(.*[^/]\.py|[A-Za-z_]\w*(\.[A-Za-z_]\w*)*)$",
        ),
    ]
    args: Annotated[
        list[str],
        Meta(
            description="Its arguments, as texts. {world_size} and {batch_size} are replaced, in"
            " env too; for any other {name} write {{name}}."
        ),
    ] = msgspec.field(default_factory=list)
    batch_sizes: Annotated[
        list[Count],
        Meta(min_length=1, description="Values of {batch_size}: one case for each."),
    ]
    samples_per_step: Annotated[
        Annotated[str, Meta(max_length=LONGEST_FORMULA)] | Count,
        Meta(
            description="Samples of a step over all ranks: a number, or a formula of {world_size}"
            " and {batch_size} with + - * // and brackets."
        ),
    ] = "{world_size} * {batch_size}"
    steps_by: Annotated[
        str,
        Meta(
            description="What ends a step. optimizer: a step of the first optimizer that steps."
            " module:function: the return of this function.",
            pattern=r"^(optimizer|[A-Za-z_][\w.]*:[A-Za-z_][\w.]*)$",
        ),
    ] = BY_OPTIMIZER
    scratch: Annotated[
        bool,
        Meta(
            description="Let the script work in a copy of the working directory, made of links: it"
            " reads the files there, and what it writes is removed after each launch. false: in"
            " the directory itself."
        ),
    ] = True
    tolerances: Annotated[
        ScriptTolerances, Meta(description="The tolerated change of each metric.")
    ] = ScriptTolerances()


def script_cases(suite: ScriptSuite, suffix: str, ranks_per_node: int | None) -> list[Case]:
    """Return the cases, ordered by batch size, then world size."""
    return [
        _case(suite, world_size, batch_size, suffix, ranks_per_node)
        for batch_size, world_size in itertools.product(
            suite.batch_sizes, sorted(suite.world_sizes)
        )
    ]


def _case(
    suite: ScriptSuite,
    world_size: int,
    batch_size: int,
    suffix: str,
    ranks_per_node: int | None,
) -> Case:
    def case_id(ranks: int) -> str:
        layout = layout_name(ranks, node_count(ranks, ranks_per_node))
        parts = [as_name(run.name), layout, f"b{batch_size}", *filter(None, [suite.variant])]
        return "-".join(parts) + suffix

    run = script_run(suite, world_size, batch_size)
    has_single = world_size > 1 and 1 in suite.world_sizes
    return Case(
        id=case_id(world_size),
        suite=suite.suite,
        tier=suite.tier,
        workload=run.script,
        script=run,
        model={},
        strategy="script",
        ddp=None,
        precision=None,
        world_size=world_size,
        nodes=node_count(world_size, ranks_per_node),
        batch_size=batch_size,
        env=filled_env(suite.env, world_size, batch_size),
        launcher=suite.launcher,
        schedule=suite.schedule(),
        tolerances=Tolerances(**msgspec.structs.asdict(suite.tolerances)),
        single=case_id(1) if has_single else None,
    )


def script_run(suite: ScriptSuite, world_size: int, batch_size: int) -> ScriptRun:
    """Return the run of a suite's script with these sizes. Raises ConfigError for its formulas."""
    sizes = {"world_size": world_size, "batch_size": batch_size}
    any_ranks = {"world_size": "{world_size}", "batch_size": batch_size}
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


def takes_batch_size(suite: ScriptSuite) -> bool:
    """Return whether an argument or a variable of the script has the batch size."""
    return any("batch_size" in sizes_in(text) for text in [*suite.args, *suite.env.values()])
