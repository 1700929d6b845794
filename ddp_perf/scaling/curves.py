"""Scaling curves from measured or published figures, and whether one link can explain them."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal, cast, get_args

import msgspec

from ddp_perf.core.baseline import TYPICAL_STEP, Baseline
from ddp_perf.core.case import (
    RANKS_AND_STRATEGY,
    Scalar,
    curve_label,
    layout_curves,
    samples_of,
    scaling_key,
    work_without,
)
from ddp_perf.core.launch import Structure, Unit, first_structure
from ddp_perf.core.metric import STEP_TIME
from ddp_perf.core.published import PublishedRow, PublishedTable
from ddp_perf.core.subject import CollectiveKind
from ddp_perf.scaling.fit import Exchanging, StepTerms
from ddp_perf.scaling.laws import (
    STRONG_ERROR,
    UNSTATED_ERROR,
    Exchange,
    ScalingPoint,
    StepShape,
    ddp_shape,
    fsdp_shape,
    point_of,
    session_points,
    unknown_shape,
)
from ddp_perf.session.figures import epoch_of
from ddp_perf.session.gate.disturbance import prevailing_disturbance
from ddp_perf.session.result import SuiteResult
from ddp_perf.stats.link import bus_factor
from ddp_perf.stats.plausibility import COMMUNICATION, audit_table

# Scaling curves from measured or published figures: one for each work and batch size.


Source = Literal["measured", "published", "modelled"]


class ScalingCurve(msgspec.Struct, frozen=True, kw_only=True):
    """The step times of one work over world sizes, at one batch: per rank, or global."""

    label: str  # "ddp, batch 32"
    where: str  # the suite or the table
    source: Source
    work: StepTerms
    strong: bool = False  # the ranks share one batch; False: each has the same (weak scaling)
    is_script: bool = False  # it chooses its strategy, its precision and its data itself
    samples: float | None = None  # per step and rank (strong: in all), in `unit`; None: not stated
    unit: str = "samples"
    per_sample: int = 1  # units in a sample; a table's batch sizes count its unit
    points: tuple[ScalingPoint, ...]  # by world size
    ranks_per_node: int | None = None  # of its cases of several nodes; None: it has none
    sessions: int | None = None  # the fewest that a measured point rests on
    left_out: tuple[str, ...] = ()  # unused rows and cases, each with its reason
    price_per_gpu_hour: float | None = None
    epoch_samples: int | None = None  # in `unit`
    injections: tuple[str, ...] = ()  # slow-downs that were injected on purpose

    @property
    def title(self) -> str:
        """The label, with the layout if the curve spans several nodes."""
        layout = f", {self.ranks_per_node} ranks per node" if self.ranks_per_node else ""
        return self.label + layout

    def samples_of(self, ranks: int) -> float | None:
        """Return the samples of a step over all ranks, in `unit`; None: not stated."""
        return self.samples if self.strong or self.samples is None else self.samples * ranks


class _Member(msgspec.Struct, frozen=True, kw_only=True):
    """The measurement of a work at one world size."""

    name: str
    work: dict[str, Scalar]
    steps: tuple[float, ...]  # seconds: the levels of sessions, or launches of one session
    sessions: int = 1
    structure: Structure | None
    unit: Unit = Unit()
    price_per_gpu_hour: float | None = None
    epoch_samples: int | None = None  # in `unit`
    unusable: str | None = None  # why its steps are not: launches were disturbed

    @property
    def world_size(self) -> int:
        return int(self.work["world_size"])


def measured_series(result: SuiteResult) -> list[ScalingCurve]:
    """Return the scaling curves of a suite's results. Disturbed cases are left out."""
    members = [
        _Member(
            name=case_id,
            work=measurement.case.work(),
            steps=tuple(row.typical_step_s for row in result.summaries[case_id]),
            structure=first_structure(measurement.launches),
            unit=measurement.launches[0].unit,
            price_per_gpu_hour=measurement.case.cost.price_per_gpu_hour,
            epoch_samples=epoch_of(measurement.case, measurement.launches[0].unit),
            unusable=prevailing_disturbance(case_id, result.measurements)
            or _without_law(measurement.case.work()),
        )
        for case_id, measurement in result.measurements.items()
        if measurement.launches and measurement.case.trains
    ]
    return [
        msgspec.structs.replace(series, injections=result.injections)
        for series in _curves(members, where=result.suite)
    ]


def stored_series(baseline: Baseline) -> list[ScalingCurve]:
    """Return the scaling curves of a baseline's measured cases.

    A point has the reference sessions, and how they differ; or the launches of a single one.
    """
    members = []
    for case_id, stored in baseline.cases.items():
        typical = [session.values(TYPICAL_STEP) for session in stored.reference(STEP_TIME.name)]
        sessions = [values for values in typical if values]
        steps = sessions[0] if len(sessions) == 1 else [statistics.median(s) for s in sessions]
        if stored.source == "measured" and steps:
            members.append(
                _Member(
                    name=case_id,
                    work=stored.work,
                    steps=tuple(steps),
                    sessions=len(sessions),
                    structure=stored.structure,
                    unusable=_without_law(stored.work),
                )
            )
    return _curves(members, where=baseline.accelerator)


def _without_law(work: Mapping[str, Scalar]) -> str | None:
    """Return why no law of a step applies to the work, or None."""
    if "nodes" in work and "fsdp.replicate" in work:
        return "each node has a copy of the parameters, and no law of a step models that"
    return None


def _curves(members: Sequence[_Member], *, where: str) -> list[ScalingCurve]:
    """Group the members by work, batch and layout, each group with its single-rank run."""
    groups: dict[str, list[_Member]] = {}
    for member in members:
        if member.world_size > 1:
            groups.setdefault(scaling_key(member.work), []).append(member)
    return [
        msgspec.structs.replace(
            _curve(where, [group[place] for place in places], members), ranks_per_node=size
        )
        for group in groups.values()
        for size, places in layout_curves([member.work for member in group]).items()
    ]


def _curve(where: str, group: Sequence[_Member], members: Sequence[_Member]) -> ScalingCurve:
    first = group[0]
    strategy, micro_steps = _exchanging(first), int(first.work.get("gradient_accumulation", 1))
    singles = [m for m in members if m.world_size == 1]
    wrapped = [m for m in singles if scaling_key(m.work) == scaling_key(first.work)]
    plain = [m for m in singles if _unwrapped(m) == _unwrapped(first)]
    shape = shape_of(first.structure, strategy, micro_steps) if first.structure else None
    curve = [*(wrapped or plain)[:1], *group]
    global_batch = _global_batch(curve)
    strong = global_batch is not None
    samples = samples_of(first.work) // (1 if strong else first.world_size)
    if not strong:
        curve = [_with_equal_batch(member, samples) for member in curve]
    usable = [member for member in curve if member.unusable is None]
    sessions = min((member.sessions for member in usable), default=None)
    steps = [(member.world_size, member.steps) for member in usable]
    points = session_points(steps) if sessions and sessions > 1 else [point_of(*o) for o in steps]
    return ScalingCurve(
        label=curve_label(first.name, first.world_size),
        where=where,
        source="measured",
        work=StepTerms(
            shape=shape or unknown_shape(strategy),
            strategy=strategy,
            batch_size=None if strong else samples // micro_steps,
            global_batch=global_batch,
            micro_steps=micro_steps,
            has_hook=any(name.startswith("comm_hook.") for name in first.work),
        ),
        strong=strong,
        is_script="script" in first.work,
        samples=samples * first.unit.per_sample,
        unit=first.unit.name,
        per_sample=first.unit.per_sample,
        points=_by_size(points, strong=strong),
        sessions=sessions,
        left_out=tuple(f"{m.name}: {m.unusable}" for m in curve if m.unusable),
        price_per_gpu_hour=first.price_per_gpu_hour,
        epoch_samples=first.epoch_samples,
    )


def _global_batch(curve: Sequence[_Member]) -> int | None:
    """Return the samples of a step that all ranks of a curve share; None: weak scaling.

    A suite states it of a workload. A script divides its batch itself: the samples of a step show
    it where several numbers of ranks have as many.
    """
    first = curve[-1]
    if "script" not in first.work:
        return cast("int | None", first.work.get("global_batch"))
    shared = {samples_of(member.work) for member in curve}
    return shared.pop() if len(shared) == 1 < len(curve) else None


def _with_equal_batch(member: _Member, samples: int) -> _Member:
    """Return the member, unusable if a rank of it has other samples than those of the curve."""
    if samples_of(member.work) == samples * member.world_size:
        return member
    return msgspec.structs.replace(
        member,
        unusable=(
            f"a step has {samples_of(member.work)} samples, not {samples} a rank, and no law"
            " models that"
        ),
    )


def _exchanging(member: _Member) -> Exchanging:
    """Return how the ranks exchange gradients; of a script, its collectives show it."""
    if "script" in member.work:
        return _stated(member.structure.strategy if member.structure is not None else None)
    return _stated(str(member.work["strategy"]))


def _unwrapped(member: _Member) -> dict[str, Scalar]:
    return work_without(member.work, RANKS_AND_STRATEGY)


def published_series(
    table: PublishedTable, structures: Mapping[str, Structure]
) -> list[ScalingCurve]:
    """Return the scaling curves of a published table, one for each strategy and batch.

    `structures` has the structure of a step by case id. It gives the buckets of rows that name a
    case, if the document states all of the case's work. Rows without a step time are left out. So
    are rows that contradict themselves, unless only the share of communication is contradictory:
    it does not affect the step time.
    """
    groups: dict[tuple[Exchanging, int | None], list[PublishedRow]] = {}
    for row in table.rows:
        if row.world_size > 1:
            groups.setdefault((_stated(row.strategy), table.kept_batch(row)), []).append(row)
    found = [_published(table, key, rows, structures) for key, rows in groups.items()]
    return [series for series in found if series.points or series.left_out]


def _published(
    table: PublishedTable,
    key: tuple[Exchanging, int | None],
    rows: list[PublishedRow],
    structures: Mapping[str, Structure],
) -> ScalingCurve:
    strategy, batch = key
    strong = table.scaling == "strong"
    rows = [*_single(table, strategy, batch), *rows]
    wrong = {
        id(found.row): str(found) for found in audit_table(table) if found.what != COMMUNICATION
    }
    timed = [(row, _step_s(row)) for row in rows]
    usable = [(row, step_s) for row, step_s in timed if step_s and id(row) not in wrong]
    cases = [row.case for row in rows if row.case and row.world_size > 1 and not table.inferred]
    structure = next(filter(None, map(structures.get, cases)), None)
    shape = shape_of(structure, strategy) if structure is not None else None
    return ScalingCurve(
        label=strategy + (f", {'global ' if strong else ''}batch {batch:,}" if batch else ""),
        where=f"{table.name} ({table.document})",
        source="modelled" if table.modelled else "published",
        work=StepTerms(
            shape=shape or unknown_shape(strategy),
            strategy=strategy,
            batch_size=None if strong else batch,
            global_batch=batch if strong else None,
        ),
        strong=strong,
        samples=batch,
        unit=table.unit,
        points=_by_size(
            (ScalingPoint(world_size=row.world_size, step_s=step_s) for row, step_s in usable),
            strong=strong,
        ),
        left_out=tuple(wrong[id(row)] for row, step_s in timed if step_s and id(row) in wrong),
        price_per_gpu_hour=table.price_per_gpu_hour,
        epoch_samples=next((row.epoch_samples for row in rows if row.epoch_samples), None),
    )


def _single(table: PublishedTable, strategy: str, batch: int | None) -> Iterator[PublishedRow]:
    """Yield the row of one GPU: with the same strategy, or else without one."""
    singles = [row for row in table.rows if row.world_size == 1 and row.batch_size == batch]
    wrapped = [row for row in singles if row.strategy == strategy]
    plain = [row for row in singles if row.strategy in (None, "none")]
    yield from (wrapped or plain)[:1]


def _step_s(row: PublishedRow) -> float | None:
    if row.step_ms is not None:
        return row.step_ms / 1e3
    if row.throughput is not None and row.batch_size is not None:
        return row.batch_size * row.world_size / row.throughput
    return None


def _by_size(points: Iterable[ScalingPoint], *, strong: bool) -> tuple[ScalingPoint, ...]:
    """Return the points by world size, with the error of a law of their kind of scaling."""
    error = STRONG_ERROR if strong else UNSTATED_ERROR
    exact = [msgspec.structs.replace(point, law_error=error) for point in points]
    return tuple(sorted(exact, key=lambda point: point.world_size))


def _stated(strategy: str | None) -> Exchanging:
    """Return how the ranks exchange gradients. A strategy that is not stated is DDP."""
    return "fsdp" if strategy == "fsdp" else "ddp"


def shape_of(structure: Structure, strategy: str, micro_steps: int = 1) -> StepShape | None:
    """Return the shape of a step from its counted collectives.

    Return None if there are none, or if a kind of them is not modelled.
    """
    kinds = {collective.kind for collective in structure.collectives}
    if not kinds or not kinds <= set(get_args(CollectiveKind)):
        return None
    exchanges = [
        Exchange(kind=cast(CollectiveKind, collective.kind), payload=collective.bytes)
        for collective in structure.collectives
    ]
    return fsdp_shape(exchanges) if strategy == "fsdp" else ddp_shape(exchanges, micro_steps)


# A test, without a fit, whether one link can explain several batches.
#
# The same bytes between the same ranks take the same time T for any batch. The part of T that
# computation cannot hide is scaling overhead: overhead ≤ T ≤ overhead + what can be hidden. Two
# batches whose ranges of T do not overlap contradict each other, for any link.


class BatchOverhead(msgspec.Struct, frozen=True, kw_only=True):
    """The scaling overhead of one batch at one world size, in seconds."""

    label: str
    overhead_s: float  # T_N − T_1; negative if N ranks are faster
    slack_s: float  # uncertainty from both step times
    hideable_s: float  # upper bound of what was hidden

    @property
    def least_s(self) -> float:
        """The lower bound of the communication time."""
        return max(0.0, self.overhead_s - self.slack_s)

    @property
    def most_s(self) -> float:
        """The upper bound of the communication time."""
        return max(0.0, self.overhead_s + self.slack_s) + self.hideable_s


def contradiction(overheads: Sequence[BatchOverhead]) -> tuple[BatchOverhead, BatchOverhead] | None:
    """Return the two batches that contradict each other most, the longer first.

    Return None if one communication time fits all batches.
    """
    apart = [
        (longer.least_s - shorter.most_s, longer, shorter)
        for longer, shorter in itertools.permutations(overheads, 2)
        if longer.least_s > shorter.most_s
    ]
    if not apart:
        return None
    _, longer, shorter = max(apart, key=lambda pair: pair[0])
    return longer, shorter


_SLACK = 2  # standard errors of a step time


def link_clashes(series: Sequence[ScalingCurve]) -> dict[int, str]:
    """Return the reason for each curve that contradicts another one of the same work.

    The keys are positions in `series`. Nothing can be predicted from these curves.
    """
    reasons: dict[int, str] = {}
    groups: dict[str, list[int]] = {}
    for i, one in enumerate(series):
        if one.strong:
            continue  # the compute of N ranks is not that of one, and not known
        exchanges = [(e.kind, e.payload) for e in one.work.shape.exchanges]
        groups.setdefault(
            repr((one.where, one.work.strategy, one.ranks_per_node, exchanges)), []
        ).append(i)
    for members in groups.values():
        sizes = {point.world_size for i in members for point in series[i].points}
        for ranks in sorted(sizes - {1}):
            overheads = [e for i in members if (e := _overhead(series[i], ranks)) is not None]
            if found := contradiction(overheads):
                why = _why(series[members[0]].work.shape, ranks, *found)
                reasons |= dict.fromkeys(members, why)
    return reasons


def _overhead(series: ScalingCurve, ranks: int) -> BatchOverhead | None:
    by_size = {point.world_size: point for point in series.points}
    if 1 not in by_size or ranks not in by_size:
        return None
    single, several = by_size[1], by_size[ranks]
    slack_s = _SLACK * (single.step_s * single.uncertainty + several.step_s * several.uncertainty)
    return BatchOverhead(
        label=series.label,
        overhead_s=several.step_s - single.step_s,
        slack_s=slack_s,
        hideable_s=series.work.shape.hideable_s(single.step_s),
    )


def _why(shape: StepShape, ranks: int, longer: BatchOverhead, shorter: BatchOverhead) -> str:
    size = f" {shape.payload / 1e6:,.1f} MB" if shape.payload_known else " gradients"
    hidden = (
        f"at most {shorter.hideable_s * 1e3:.1f} ms of it can hide"
        if shorter.hideable_s
        else "none of it can hide (the bucket is full only when the backward ends)"
    )
    return (
        f"contradiction: {ranks} ranks exchange the same{size} at any batch, and {hidden};"
        f" but {_shown(longer, shape, ranks)}, and {_shown(shorter, shape, ranks)}. No fixed link"
        " explains both: a figure is wrong, or the time is not spent on the transfer"
    )


def _shown(overhead: BatchOverhead, shape: StepShape, ranks: int) -> str:
    text = (
        f"{overhead.overhead_s * 1e3:.1f} ± {overhead.slack_s * 1e3:.1f} ms are added at"
        f" {overhead.label}"
    )
    if not shape.payload_known or overhead.overhead_s <= 0:
        return text
    sent = sum(e.payload * bus_factor(e.kind, ranks) for e in shape.exchanges)
    return f"{text} ({sent / overhead.overhead_s / 1e9:.1f} GB/s of bus bandwidth)"
