"""What holds a case's scaling back, and what would help: rules on measured terms.

A rule speaks only where its terms were measured. What it promises is modelled: the step's
measured terms, with the one that it changes replaced; so it is at most what can be had.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from ddp_perf.core.decomposition import Decomposition
from ddp_perf.core.strategy import Strategy
from ddp_perf.render.units import milliseconds

EXCELLENT, GOOD, FAIR = 0.85, 0.70, 0.50  # scaling efficiency from which on a label holds
_MATTERS = 0.10  # of the step: a term below it is not worth anybody's work
_SMALL_MESSAGE = 2**20  # bytes: below, a collective's latency counts more than its bytes
_SHORT_STEP_S = 0.030  # document 000: keep computation above 30 to 50 ms a step
_ROOMY = 0.5  # of a GPU's memory: what is left would hold as much again
_TIMES = 4  # batch size, or micro-steps, in the promise of a rule


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """What the rules look at, of one case. Seconds and bytes."""

    strategy: Strategy
    hook: str | None  # kind of DDP's communication hook
    accumulation: int  # micro-steps of a step
    ranks: int
    efficiency: float | None  # None: no one-rank leg
    step: Decomposition
    message_bytes: Sequence[int]  # of each collective of a step
    peak_memory: float
    gpu_memory: int | None  # None: not on a GPU
    loads_data: bool

    @property
    def compute_s(self) -> float:
        return sum(self.step.terms[term] for term in ("forward", "backward", "optimizer"))

    @property
    def communication_cost_s(self) -> float:
        """What the step pays for communication, whatever is hidden."""
        return self.step.terms["exposed"] + self.step.terms["interference"]

    def share(self, seconds: float) -> float:
        return seconds / self.step.step_s


class Advice(msgspec.Struct, frozen=True, kw_only=True):
    """A finding with its figures, what to do, and the throughput to be had: 1.3 is 30 % more."""

    finding: str
    recommendation: str
    factor: float | None  # modelled, at most; None: not told by these terms


def label(efficiency: float, ranks: int) -> str:
    """How good scaling is, in words (after document 003's report)."""
    if efficiency * ranks < 1:
        return "Negative scaling"
    for bound, name in ((EXCELLENT, "Excellent"), (GOOD, "Good"), (FAIR, "Fair")):
        if efficiency >= bound:
            return name
    return "Poor"


def advise(measured: Measured) -> list[Advice]:
    """What applies, the largest promise first."""
    found = [
        Advice(
            finding=rule.finding(measured),
            recommendation=rule.recommendation,
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
    factor: Callable[[Measured], float | None]


def _without(seconds: Callable[[Measured], float]) -> Callable[[Measured], float]:
    """Throughput where so much of the step is gone."""
    return lambda m: m.step.step_s / (m.step.step_s - seconds(m))


def _with_larger_batch(m: Measured) -> float:
    """Computation grows with the batch, everything else stays."""
    return _TIMES * m.step.step_s / (m.step.step_s + (_TIMES - 1) * m.compute_s)


def _costly(m: Measured) -> bool:
    """Where it is not seen, nothing is known of it."""
    seen = m.ranks > 1 and m.step.sees_communication
    return seen and m.share(m.communication_cost_s) > _MATTERS


def _costly_buckets(m: Measured) -> bool:
    """DDP's own all-reduce of its buckets."""
    return _costly(m) and m.strategy == "ddp" and m.hook is None


def _mean_message(m: Measured) -> float:
    return sum(m.message_bytes) / len(m.message_bytes) if m.message_bytes else 0.0


def _term(name: str) -> Callable[[Measured], float]:
    return lambda m: m.step.terms[name]


def _matters(name: str) -> Callable[[Measured], bool]:
    return lambda m: m.share(m.step.terms[name]) > _MATTERS


def _ms(seconds: float) -> str:
    return f"{milliseconds(seconds, 1)} ms"


_RULES = (
    _Rule(
        applies=lambda m: m.efficiency is not None and m.efficiency * m.ranks < 1,
        finding=lambda m: (
            f"{m.ranks} ranks are slower than one ({(m.efficiency or 0) * m.ranks:.2f} ×)"
        ),
        recommendation="train on one, until a step computes for longer than it communicates",
        factor=lambda m: 1 / ((m.efficiency or 1.0) * m.ranks),
    ),
    _Rule(
        applies=lambda m: _costly(m) and m.compute_s < _SHORT_STEP_S,
        finding=lambda m: (
            f"a step computes for {_ms(m.compute_s)} and pays {_ms(m.communication_cost_s)} for"
            " communication: the model, or the batch, is small"
        ),
        recommendation=f"a larger batch per rank ({_TIMES} times in this figure)",
        factor=_with_larger_batch,
    ),
    _Rule(
        applies=lambda m: _costly_buckets(m) and _mean_message(m) >= _SMALL_MESSAGE,
        finding=lambda m: (
            f"bandwidth-bound: {_ms(m.communication_cost_s)} for"
            f" {sum(m.message_bytes) / 1e6:,.0f} MB"
        ),
        recommendation="send half: comm_hooks: [{kind: bf16}] or fp16",
        factor=_without(lambda m: m.communication_cost_s / 2),
    ),
    _Rule(
        applies=lambda m: _costly(m) and m.accumulation == 1,
        finding=lambda m: (
            f"{m.share(m.communication_cost_s):.0%} of the step is communication that nothing hides"
        ),
        recommendation=f"gradient_accumulation: {_TIMES} pays it once in {_TIMES} batches",
        factor=_without(lambda m: m.communication_cost_s * (1 - 1 / _TIMES)),
    ),
    _Rule(
        applies=lambda m: (
            _costly_buckets(m) and len(m.message_bytes) > 1 and _mean_message(m) < _SMALL_MESSAGE
        ),
        finding=lambda m: (
            f"latency-bound: {len(m.message_bytes)} collectives a step, of"
            f" {_mean_message(m) / 1e3:,.0f} kB on average"
        ),
        recommendation="larger buckets (ddp: {bucket_cap_mb: …}), or static_graph",
        factor=lambda m: None,
    ),
    _Rule(
        applies=lambda m: _costly_buckets(m) and len(m.message_bytes) == 1,
        finding=lambda m: "one bucket holds all gradients: nothing is sent before the last of them",
        recommendation="a smaller ddp: {bucket_cap_mb: …}, so that the first is sent earlier",
        factor=lambda m: None,
    ),
    _Rule(
        applies=_matters("imbalance"),
        finding=lambda m: (
            f"load imbalance: ranks wait {_ms(m.step.terms['imbalance'])} for the slowest one,"
            f" in {m.step.slowest_share:.0%} of the steps rank {m.step.slowest_rank}"
        ),
        recommendation="look at that rank's device, its cores and its share of the data",
        factor=_without(_term("imbalance")),
    ),
    _Rule(
        applies=lambda m: m.loads_data and _matters("data")(m),
        finding=lambda m: f"a step waits {_ms(m.step.terms['data'])} for its batch",
        recommendation="more loader workers (data: {num_workers: …}), or less work in them",
        factor=_without(_term("data")),
    ),
    _Rule(
        applies=_matters("idle"),
        finding=lambda m: f"the ranks had no core for {_ms(m.step.terms['idle'])} of a step",
        recommendation="leave the ranks their cores: fewer loader workers, nothing beside them",
        factor=_without(_term("idle")),
    ),
    _Rule(
        applies=lambda m: m.gpu_memory is not None and m.step.host_reads > 0,
        finding=lambda m: f"the host waits for {m.step.host_reads} values of the GPU a step",
        recommendation="read losses and metrics (.item()) every few steps only",
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
