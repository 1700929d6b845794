"""Rules on measured terms that find what limits a case's scaling, and give advice.

A rule applies only if its terms were measured. The throughput that it promises is modelled: one of
the step's measured terms is replaced. The promise is therefore an upper bound.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from ddp_perf.core.decomposition import Decomposition
from ddp_perf.core.strategy import Strategy
from ddp_perf.render.units import milliseconds

EXCELLENT, GOOD, FAIR = 0.85, 0.70, 0.50  # least scaling efficiency of each label
_MATTERS = 0.10  # of the step: a smaller term is not worth the work
_SMALL_MESSAGE = 2**20  # bytes: a smaller collective is dominated by its latency
_SHORT_STEP_S = 0.030  # document 000: keep computation above 30 to 50 ms a step
_ROOMY = 0.5  # of a GPU's memory: less in use leaves room for a batch of twice the size
_NO_CORE_LEFT = 0.9  # of the CPU time of all cores: further workers find no core
_TIMES = 4  # batch size, or micro-steps, in the promise of a rule


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """The measurements of one case that the rules read. Seconds and bytes."""

    is_script: bool = False  # advice then names what to change in the script, not in the suite
    strategy: Strategy  # of a script: the one that its collectives show
    hook: str | None  # kind of DDP's communication hook
    accumulation: int  # micro-steps of a step
    keeps_global_batch: bool = False  # strong scaling: micro-steps divide the batch
    ranks: int
    efficiency: float | None  # None: no single-rank run
    step: Decomposition
    message_bytes: Sequence[int]  # of each collective of a step
    peak_memory: float
    gpu_memory: int | None  # None: not on a GPU
    loads_data: bool
    cores_share: float | None = None  # of the CPU time of their cores: ranks and loaders

    @property
    def compute_s(self) -> float:
        """Seconds of forward, backward and optimizer."""
        return sum(self.step.terms[term] for term in ("forward", "backward", "optimizer"))

    @property
    def communication_cost_s(self) -> float:
        """Seconds that communication adds to the step: all of it that is not hidden."""
        return self.step.terms["exposed"] + self.step.terms["interference"]

    def share(self, seconds: float) -> float:
        """Return seconds as a share of the step."""
        return seconds / self.step.step_s


class Advice(msgspec.Struct, frozen=True, kw_only=True):
    """A finding with its figures, a recommendation, and the throughput that it could bring."""

    finding: str
    recommendation: str
    factor: float | None  # upper bound, modelled: 1.3 is 30 % more; None: no model for it


def label(efficiency: float, ranks: int) -> str:
    """Return the label of a scaling efficiency (the labels of document 003's report)."""
    if efficiency * ranks < 1:
        return "Negative scaling"
    for bound, name in ((EXCELLENT, "Excellent"), (GOOD, "Good"), (FAIR, "Fair")):
        if efficiency >= bound:
            return name
    return "Poor"


def advise(measured: Measured) -> list[Advice]:
    """Return the advice whose rules apply, the largest factor first."""
    found = [
        Advice(
            finding=rule.finding(measured),
            recommendation=(measured.is_script and rule.in_script) or rule.recommendation,
            factor=rule.factor(measured),
        )
        for rule in _RULES
        if rule.applies(measured)
    ]
    return sorted(found, key=lambda advice: advice.factor or 1.0, reverse=True)


@dataclass(frozen=True, kw_only=True)
class _Rule:
    applies: Callable[[Measured], bool]
    finding: Callable[[Measured], str]
    recommendation: str
    in_script: str | None = None  # the recommendation, where the other one is an option of a suite
    factor: Callable[[Measured], float | None]


def _without(seconds: Callable[[Measured], float]) -> Callable[[Measured], float]:
    """Return the factor of throughput if `seconds` of the step were saved."""
    return lambda m: m.step.step_s / (m.step.step_s - seconds(m))


def _with_larger_batch(m: Measured) -> float:
    """Return the factor if only the computation grows with the batch."""
    return _TIMES * m.step.step_s / (m.step.step_s + (_TIMES - 1) * m.compute_s)


def _costly(m: Measured) -> bool:
    """Return whether communication was measured and is a large part of the step."""
    seen = m.ranks > 1 and m.step.sees_communication
    return seen and m.share(m.communication_cost_s) > _MATTERS


def _costly_buckets(m: Measured) -> bool:
    """Return whether DDP's own all-reduce of its buckets is a large part of the step."""
    return _costly(m) and m.strategy == "ddp" and m.hook is None


def _mean_message(m: Measured) -> float:
    return sum(m.message_bytes) / len(m.message_bytes) if m.message_bytes else 0.0


def _term(name: str) -> Callable[[Measured], float]:
    return lambda m: m.step.terms[name]


def _matters(name: str) -> Callable[[Measured], bool]:
    return lambda m: m.share(m.step.terms[name]) > _MATTERS


def _waits_for_data(m: Measured) -> bool:
    return m.loads_data and _matters("data")(m)


def _has_no_core_left(m: Measured) -> bool:
    return m.cores_share is not None and m.cores_share >= _NO_CORE_LEFT


def _ms(seconds: float) -> str:
    return f"{milliseconds(seconds, 1)} ms"


_RULES = (
    _Rule(
        applies=lambda m: m.efficiency is not None and m.efficiency * m.ranks < 1,
        finding=lambda m: (
            f"{m.ranks} ranks are slower than one ({(m.efficiency or 0) * m.ranks:.2f} ×)"
        ),
        recommendation="train on one rank until a step computes longer than it communicates",
        factor=lambda m: 1 / ((m.efficiency or 1.0) * m.ranks),
    ),
    _Rule(
        applies=lambda m: _costly(m) and m.compute_s < _SHORT_STEP_S,
        finding=lambda m: (
            f"a step computes for {_ms(m.compute_s)} and communication adds"
            f" {_ms(m.communication_cost_s)}, since the model or the batch is small"
        ),
        recommendation=f"use a larger batch per rank (the factor is for {_TIMES} times as large)",
        factor=_with_larger_batch,
    ),
    _Rule(
        applies=lambda m: _costly_buckets(m) and _mean_message(m) >= _SMALL_MESSAGE,
        finding=lambda m: (
            f"the bandwidth limits it: {sum(m.message_bytes) / 1e6:,.0f} MB take"
            f" {_ms(m.communication_cost_s)}"
        ),
        recommendation="send half of the bytes (comm_hooks: [{kind: bf16}] or fp16)",
        in_script="send half of the bytes (model.register_comm_hook(None, bf16_compress_hook))",
        factor=_without(lambda m: m.communication_cost_s / 2),
    ),
    _Rule(
        # A given batch in micro-steps is communicated once, as without them: nothing is saved.
        applies=lambda m: _costly(m) and m.accumulation == 1 and not m.keeps_global_batch,
        finding=lambda m: (
            f"{m.share(m.communication_cost_s):.0%} of the step is communication that nothing hides"
        ),
        recommendation=f"communicate once in {_TIMES} batches (gradient_accumulation: {_TIMES})",
        in_script=(
            f"accumulate the gradients of {_TIMES} batches, all but the last under model.no_sync(),"
            f" to communicate once in {_TIMES} batches"
        ),
        factor=_without(lambda m: m.communication_cost_s * (1 - 1 / _TIMES)),
    ),
    _Rule(
        applies=lambda m: (
            _costly_buckets(m) and len(m.message_bytes) > 1 and _mean_message(m) < _SMALL_MESSAGE
        ),
        finding=lambda m: (
            f"the latency limits it: a step has {len(m.message_bytes)} collectives of"
            f" {_mean_message(m) / 1e3:,.0f} kB on average"
        ),
        recommendation="use larger buckets (ddp: {bucket_cap_mb: …}), or static_graph",
        in_script=(
            "use larger buckets (DistributedDataParallel(…, bucket_cap_mb=…)), or static_graph=True"
        ),
        factor=lambda m: None,
    ),
    _Rule(
        applies=lambda m: _costly_buckets(m) and len(m.message_bytes) == 1,
        finding=lambda m: (
            "one bucket contains all gradients, so nothing is sent before the last one is ready"
        ),
        recommendation="use smaller buckets (ddp: {bucket_cap_mb: …}), which are sent earlier",
        in_script=(
            "use smaller buckets (DistributedDataParallel(…, bucket_cap_mb=…)), which are sent"
            " earlier"
        ),
        factor=lambda m: None,
    ),
    _Rule(
        applies=_matters("imbalance"),
        finding=lambda m: (
            f"ranks wait {_ms(m.step.terms['imbalance'])} for the slowest rank, which is rank"
            f" {m.step.slowest_rank} in {m.step.slowest_share:.0%} of the steps"
        ),
        recommendation="check that rank's device, its cores and its share of the data",
        factor=_without(_term("imbalance")),
    ),
    _Rule(
        applies=lambda m: _waits_for_data(m) and _has_no_core_left(m),
        finding=lambda m: (
            f"a step waits {_ms(m.step.terms['data'])} for its batch, and the ranks and their"
            f" loaders use {m.cores_share or 0:.0%} of their cores, so further workers find none"
        ),
        recommendation=(
            "give the ranks more cores, or their loaders less work, as by samples that are stored"
            " as the model needs them"
        ),
        factor=_without(_term("data")),
    ),
    _Rule(
        applies=lambda m: _waits_for_data(m) and not _has_no_core_left(m),
        finding=lambda m: f"a step waits {_ms(m.step.terms['data'])} for its batch",
        recommendation="use more loader workers (data: {num_workers: …}), or give them less work",
        in_script="use more loader workers (DataLoader(…, num_workers=…)), or give them less work",
        factor=_without(_term("data")),
    ),
    _Rule(
        applies=_matters("idle"),
        finding=lambda m: f"the ranks had no core for {_ms(m.step.terms['idle'])} of a step",
        recommendation="keep the cores free for the ranks, with fewer loader workers or programs",
        factor=_without(_term("idle")),
    ),
    _Rule(
        applies=lambda m: m.gpu_memory is not None and m.step.host_reads > 0,
        finding=lambda m: f"the host waits for {m.step.host_reads} values of the GPU in each step",
        recommendation="read losses and metrics (.item()) only every few steps",
        factor=lambda m: None,
    ),
    _Rule(
        applies=lambda m: (
            _costly(m) and m.gpu_memory is not None and m.peak_memory < _ROOMY * m.gpu_memory
        ),
        finding=lambda m: (
            f"{1 - m.peak_memory / (m.gpu_memory or 1):.0%} of the GPU's memory is free"
        ),
        recommendation="use it for a larger batch",
        factor=lambda m: None,
    ),
)
