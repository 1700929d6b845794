"""The step that advice starts from, as a file shows it: size, memory, precision, machine."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, cast

import msgspec

from ddp_perf.core.baseline import Baseline
from ddp_perf.core.case import RANKS_AND_STRATEGY, Scalar, curve_label, work_without
from ddp_perf.core.launch import first_structure
from ddp_perf.core.metric import PEAK_MEMORY
from ddp_perf.core.strategy import Precision
from ddp_perf.errors import ConfigError
from ddp_perf.scaling.curves import ScalingCurve
from ddp_perf.session.result import SuiteResult

_BATCH = {"batch_size", "gradient_accumulation"}
_CHECKPOINT = {"activation_checkpointing"}


Kept = Literal["all", "checkpoints"]  # which activations are kept for the backward


class CaseFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A measured case, as far as advice needs it."""

    where: str  # the suite or the accelerator, as of its curve
    case_id: str
    work: dict[str, Scalar]
    parameters: int | None
    peak_memory: float | None  # bytes of a rank
    accelerator: str  # the key
    gpu_memory: int | None = None  # bytes

    @property
    def samples(self) -> int:
        """Samples of a micro-step of a rank."""
        return int(self.work["batch_size"])

    @property
    def world_size(self) -> int:
        return int(self.work["world_size"])


class MeasuredStep(msgspec.Struct, frozen=True, kw_only=True):
    """The curve that advice starts from, with what is known of its step."""

    curve: ScalingCurve
    work: dict[str, Scalar] = {}  # empty: a published table
    parameters: float
    accelerator: str = ""
    gpu_memory: int | None = None
    activations: dict[Kept, float] = {}  # bytes of a sample

    @property
    def precision(self) -> Precision:
        return cast(Precision, self.work.get("precision", "fp32"))

    @property
    def half(self) -> bool:
        return self.precision in ("fp16", "bf16")

    @property
    def checkpointed(self) -> bool:
        return bool(self.work.get("activation_checkpointing", False))

    @property
    def on_cpu(self) -> bool:
        return self.work.get("tier") == "cpu"


def result_facts(result: SuiteResult) -> Iterator[CaseFacts]:
    """Yield the facts of the cases of a results file that train and have a launch."""
    for case_id, measurement in result.measurements.items():
        rows = result.summaries.get(case_id, ())
        if not measurement.case.trains or not rows:
            continue
        structure = first_structure(measurement.launches)
        yield CaseFacts(
            where=result.suite,
            case_id=case_id,
            work=measurement.case.work(),
            parameters=structure.parameters if structure else None,
            peak_memory=statistics.median(row.values[PEAK_MEMORY.name] for row in rows),
            accelerator=result.environment.accelerator_key,
            gpu_memory=result.environment.gpu_memory,
        )


def stored_facts(baseline: Baseline) -> Iterator[CaseFacts]:
    """Yield the facts of the cases of a baseline that were measured."""
    for case_id, stored in baseline.cases.items():
        if stored.source != "measured" or "batch_size" not in stored.work or not stored.sessions:
            continue
        yield CaseFacts(
            where=baseline.accelerator,
            case_id=case_id,
            work=stored.work,
            parameters=stored.structure.parameters if stored.structure else None,
            peak_memory=stored.level(PEAK_MEMORY.name),
            accelerator=baseline.accelerator,
            gpu_memory=stored.sessions[-1].environment.gpu_memory,
        )


def measured_step(
    curve: ScalingCurve, facts: Sequence[CaseFacts], parameters: float | None = None
) -> MeasuredStep:
    """Return the step of a curve with what the cases of the same work show of it.

    The parameters are given if the file states none. Raises ConfigError if neither or both are so.
    """
    members = [
        fact
        for fact in facts
        if fact.where == curve.where
        and fact.world_size > 1
        and curve_label(fact.case_id, fact.world_size) == curve.label
    ]
    if not members:
        shape = curve.work.shape
        known = shape.payload_known and curve.work.strategy == "ddp"
        stated = int(shape.payload / 4) if known else None
        return MeasuredStep(curve=curve, parameters=_parameters(curve, stated, parameters))
    first = members[0]
    return MeasuredStep(
        curve=curve,
        work=first.work,
        parameters=_parameters(curve, first.parameters, parameters),
        accelerator=first.accelerator,
        gpu_memory=first.gpu_memory,
        activations=_activations(first, facts),
    )


def _parameters(curve: ScalingCurve, stated: int | None, given: float | None) -> float:
    """Return the parameters of the measured model, from the file or as given."""
    where = f"{curve.where}, {curve.label}"
    if stated and given:
        raise ConfigError(f"{where}: {stated:,} parameters are stated: omit --measured-params")
    parameters = stated or given
    if not parameters:
        raise ConfigError(
            f"{where}: no parameters of the measured model are stated: give --measured-params,"
            " as in 25.6e6"
        )
    return parameters


def _activations(member: CaseFacts, facts: Sequence[CaseFacts]) -> dict[Kept, float]:
    """Return the memory of a sample: the difference of two batches, so that no state is in it.

    It is the largest over the numbers of ranks and strategies.
    """
    found: dict[Kept, float] = {}
    same = _model_of(member.work)
    groups: dict[str, list[CaseFacts]] = {}
    for fact in facts:
        if fact.peak_memory is not None and _model_of(fact.work) == same:
            groups.setdefault(repr(sorted(work_without(fact.work, _BATCH).items())), []).append(
                fact
            )
    for group in groups.values():
        small, large = (pick(group, key=lambda fact: fact.samples) for pick in (min, max))
        if small.samples < large.samples and small.peak_memory and large.peak_memory:
            slope = (large.peak_memory - small.peak_memory) / (large.samples - small.samples)
            kept: Kept = "checkpoints" if small.work.get("activation_checkpointing") else "all"
            if slope > found.get(kept, 0.0):
                found[kept] = slope
    return found


def _model_of(work: Mapping[str, Scalar]) -> dict[str, Scalar]:
    return work_without(work, RANKS_AND_STRATEGY | _BATCH | _CHECKPOINT)
