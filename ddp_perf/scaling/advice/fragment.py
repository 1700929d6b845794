"""The suite file that measures a recommended plan."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import yaml

from ddp_perf.core.case import Scalar
from ddp_perf.core.strategy import DdpOptions, changed_options
from ddp_perf.scaling.advice.choice import Recommendation
from ddp_perf.scaling.advice.plan import Plan, fits, plan_memory

_LIKE = 0.01  # parameters that differ by less are those of the measured model


def suite_fragment(found: Recommendation, plan: Plan) -> str:
    """Return the suite file, as YAML, with a comment where the user's model has to go."""
    lines = ["# Written by ddp-perf advise: it measures what was recommended."]
    if not _is_measured_model(found):
        lines.append(
            f"# Set workload and model to those of {found.goal.parameters:.3g} parameters."
        )
    text: str = yaml.safe_dump(_suite(found, plan), sort_keys=False, default_flow_style=None)
    return "\n".join([*lines, text.rstrip()])


def _suite(found: Recommendation, plan: Plan) -> dict[str, object]:
    work, goal = found.step.work, found.goal
    suite: dict[str, object] = {
        "suite": "advised",
        "tier": work.get("tier", "gpu"),
        "workload": work.get("workload", "my_project.benchmark:build"),
    }
    if model := dict(_group(work, "model")):
        suite["model"] = model
    single = msgspec.structs.replace(goal, gpus=1)
    alone = plan.sharding == "ddp" or fits(plan_memory(plan, single, found.step), single)
    suite["world_sizes"] = sorted({1, goal.gpus}) if alone else [goal.gpus]
    suite["strategy"] = "ddp" if plan.sharding == "ddp" else "fsdp"
    if plan.sharding == "ddp":
        measured = msgspec.convert(dict(_group(work, "ddp")), DdpOptions)
        suite["ddp"] = {**changed_options(measured), "gradient_as_bucket_view": True}
    elif options := _fsdp_options(plan):
        suite["fsdp"] = options
    if plan.hook is not None:
        suite["comm_hooks"] = [None, {"kind": plan.hook}]
    suite["precision"] = plan.precision
    if plan.micro_steps > 1:
        suite["gradient_accumulation"] = plan.micro_steps
    if plan.checkpointing:
        suite["activation_checkpointing"] = True
    suite["batch_sizes"] = sorted({max(1, plan.batch_size // 2), plan.batch_size})
    return suite


def _fsdp_options(plan: Plan) -> dict[str, bool]:
    options = {}
    if plan.sharding == "zero2":
        options["reshard_after_forward"] = False
    if plan.sharding == "offload":
        options["cpu_offload"] = True
    return options


def _group(work: dict[str, Scalar], name: str) -> Iterator[tuple[str, Scalar]]:
    for key, value in work.items():
        group, _, field = key.partition(".")
        if group == name and field:
            yield field, value


def _is_measured_model(found: Recommendation) -> bool:
    ratio = found.goal.parameters / found.step.parameters
    return bool(found.step.work) and abs(ratio - 1) < _LIKE
