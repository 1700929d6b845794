"""Advice as text, as JSON, and as the suite file that measures a recommended plan."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import yaml

from ddp_perf.core.case import Scalar
from ddp_perf.core.strategy import DdpOptions, changed_options
from ddp_perf.render.model import Note, Table, figures, words
from ddp_perf.render.terminal import Block
from ddp_perf.render.units import ABSENT, counted, short_number, with_interval
from ddp_perf.scaling.advice.choice import (
    DOCUMENT,
    MASSIVE,
    TITLES,
    USABLE,
    Candidate,
    Plan,
    Recommendation,
    fits,
    gain_text,
    plan_memory,
    sum_text,
)
from ddp_perf.scaling.fit import Band
from ddp_perf.scaling.text import curve_title
from ddp_perf.stats.hardware import RankMemory

# The suite file that measures a recommended plan.


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


# Advice as text and as JSON: the recommendation, the candidates, the document, the suite file.


SCHEMA_VERSION = 1
_GIGA = 1e9


class AdviceFile(msgspec.Struct, frozen=True, kw_only=True):
    """The advice for programs. What is modelled has 90 % bands."""

    schema_version: int = SCHEMA_VERSION
    confidence: float = 0.9
    recommendation: Recommendation
    document: str = DOCUMENT  # of the use; its figures were not measured here
    suite: str  # YAML: the suite file that measures the recommended plan; empty: nothing fits


def advice_file(found: Recommendation) -> AdviceFile:
    """Return the advice for programs."""
    suite = suite_fragment(found, found.plan) if found.plan is not None else ""
    return AdviceFile(recommendation=found, suite=suite)


def advice_parts(found: Recommendation) -> Iterator[Block]:
    """Yield the recommendation, the candidates, what the document says, and the suite file."""
    goal, curve = found.goal, found.step.curve
    ranks = ", ".join(str(point.world_size) for point in curve.points)
    by = "parameters" if goal.parameters > MASSIVE else "number of GPUs"
    yield (
        f"{goal.parameters:.3g} parameters, {goal.optimizer}, on {counted(goal.gpus, 'GPU')} of"
        f" {goal.gpu_memory / _GIGA:.0f} GB; by {by}: {found.use.name}"
    )
    yield f"from {curve_title(curve)}, {ranks} ranks, {found.step.parameters:.3g} parameters"
    yield ""
    yield from _recommended(found)
    yield _table(found)
    yield from _notes(found)
    if found.plan is not None:
        yield ""
        yield Note(text=suite_fragment(found, found.plan), kind="output")


def _recommended(found: Recommendation) -> Iterator[str]:
    plan, goal = found.plan, found.goal
    if plan is None:
        least = min(found.candidates, key=lambda one: one.memory.peak)
        yield (
            f"DOES NOT FIT: the smallest is {least.plan.title}, {_memory_text(least.memory)} of"
            f" {USABLE * goal.gpu_memory / _GIGA:.0f} usable GB; more GPUs, or GPUs with more"
            " memory, are needed"
        )
        return
    chosen = found.candidates[0]
    micro = f" × {counted(plan.micro_steps, 'micro-step')}" if plan.micro_steps > 1 else ""
    yield f"strategy    {TITLES[plan.sharding]}"
    yield f"precision   {plan.precision}"
    yield f"hook        {plan.hook or 'none'}"
    yield f"checkpoints {'yes' if plan.checkpointing else 'no'}"
    yield (f"batch       {plan.batch_size} a GPU{micro}: {plan.samples * goal.gpus} samples a step")
    yield f"memory      {_memory_text(chosen.memory)} of {goal.gpu_memory / _GIGA:.0f} GB"
    if chosen.time is None:
        yield "step        not modelled: the host's optimizer is not measured"
        return
    step, efficiency = chosen.time.step_s, chosen.time.efficiency
    yield f"step        {with_interval(step, 1e3, 'ms')} (modelled)"
    yield f"efficiency  {with_interval(efficiency, 100, '%')} (modelled)"
    overhead = Band(value=1 - efficiency.value, low=1 - efficiency.high, high=1 - efficiency.low)
    yield f"overhead    {with_interval(overhead, 100, '%')} of a step (modelled)"


def _memory_text(memory: RankMemory) -> str:
    unknown = "" if memory.activations is not None else "; activations not known"
    host = f"; host {short_number(memory.host / _GIGA)} GB" if memory.host else ""
    return f"{short_number(memory.peak / _GIGA)} GB ({sum_text(memory)}{unknown}{host})"


def _table(found: Recommendation) -> Table:
    titles = ("batch", "memory GB", "step ms", "effi\u00adciency %", "through\u00adput, %")
    return Table.of_texts(
        (*words("candidate"), *figures(*titles), *words("reason")),
        (
            (one.plan.title, *_cells(one), one.rejection or "RECOMMENDED")
            for one in found.candidates
        ),
    )


def _cells(candidate: Candidate) -> list[str]:
    plan, time, gain = candidate.plan, candidate.time, candidate.gain
    batch = f"{plan.batch_size}×{plan.micro_steps}" if plan.micro_steps > 1 else plan.batch_size
    unknown = "+?" if candidate.memory.activations is None else ""
    return [
        str(batch),
        f"{short_number(candidate.memory.peak / _GIGA)}{unknown}",
        short_number(1e3 * time.step_s.value) if time else ABSENT,
        f"{100 * time.efficiency.value:.0f}" if time else ABSENT,
        gain_text(gain).removesuffix(" %") if gain and candidate.rejection else ABSENT,
    ]


def _notes(found: Recommendation) -> Iterator[str]:
    yield (
        "Memory by formula (Rajbhandari et al. 2020), steps by the fitted α-β model with 90 %"
        " bands, compute proportional to parameters × samples (Kaplan et al. 2020); all modelled."
        " Throughput is relative to the recommended plan."
    )
    yield from (f"{reason[0].upper()}{reason[1:]}." for reason in found.reasons)
    if not found.step.activations:
        yield (
            "Activations are not known: the file has no two batch sizes of one case with their"
            " memory, so no larger batch is recommended, and what fits may not fit."
        )
    if found.step.on_cpu:
        yield "The step and the link were measured on CPUs: on GPUs both are others."
    build = found.candidates[0].memory.build
    if found.plan is not None and build > USABLE * found.goal.gpu_memory:
        yield (
            f"This suite builds the whole model, {build / _GIGA:.0f} GB, on each GPU before it is"
            " sharded, and so cannot measure it: measure a smaller model of this kind."
        )
    largest = max(point.world_size for point in found.step.curve.points)
    if found.goal.gpus > largest:
        yield f"{found.goal.gpus} GPUs are beyond the {largest} measured ranks."
    yield from _document(found)


def _document(found: Recommendation) -> Iterator[str]:
    use = found.use
    low, high = use.efficiency
    least, most = use.batch_size
    batch = str(least) if least == most else f"{least} to {most}"
    further = f", {use.further}" if use.further else ""
    yield (
        f"Document 004 for {use.name} ({use.gpus[0]} to {use.gpus[1]} GPUs; its advice, not"
        f" measured here): {use.strategy}, batch {batch}, {low:.0%} to {high:.0%}"
        f" efficiency{further}."
    )
    if found.plan is not None:
        yield from (f"Differs in {one}." for one in found.differences)
        if not found.differences:
            yield "The models agree with it."
