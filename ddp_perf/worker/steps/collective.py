"""Steps that are calls of one collective: they measure the link without a model.

The result is checked against arithmetic before the timed calls and after them. The timed calls
use zeros: repeated sums in place of any other values would overflow.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
import torch.distributed as dist

from ddp_perf.core.launch import Unit
from ddp_perf.core.subject import FLOAT32, CollectiveStep, size_text
from ddp_perf.errors import CollectiveError
from ddp_perf.torch_compat import all_gather, reduce_scatter
from ddp_perf.worker.rank_context import RankContext
from ddp_perf.worker.steps.protocol import ReportingSteps, StepFacts, StepPlan

_PERIOD = 1021  # a prime: no algorithm has chunks of this length, so exchanged chunks are noticed


class CollectiveSteps(ReportingSteps):
    """The calls of a collective on one rank.

    Building and examining them raises CollectiveError if a result is wrong.
    """

    collects_garbage = False

    def __init__(self, step: CollectiveStep, context: RankContext) -> None:
        super().__init__(context.rank, context.heartbeats)
        self._step = step
        # Throughput is the algorithm bandwidth (algbw of nccl-tests) in bytes a second.
        self.unit = Unit(name="bytes", per_sample=step.payload)
        self._world_size = dist.get_world_size()
        # The payload, and the share of it that this rank sends or receives.
        self._whole = torch.zeros(step.payload // FLOAT32, device=context.device)
        self._shares = self._whole.chunk(self._world_size)  # views: one for each rank
        self._own = torch.zeros_like(self._shares[self.rank])
        self._call = functools.partial(CALLS[step.kind], self._whole, self._own)
        self._check()

    def step(self) -> None:
        self.beat()
        for _ in range(self._step.calls):
            self._call()
        self.beat()

    def examine(self) -> StepPlan[StepFacts]:
        """Check the result once more, without a step. Raises CollectiveError if it is wrong."""
        self._check()
        yield from ()
        return StepFacts()

    def _check(self) -> None:
        """Run one call on values that differ by rank and place; afterwards all values are zero.

        Raises CollectiveError if the result is not the expected one.
        """
        self._whole.copy_(self._values(self.rank))
        self._own.copy_(self._shares[self.rank])
        if self._step.kind == "all_gather":
            self._whole.zero_()
        self._call()
        scatters = self._step.kind == "reduce_scatter"
        self._compare(self._own if scatters else self._whole, self._expected())
        self._whole.zero_()
        self._own.zero_()

    def _values(self, rank: int) -> torch.Tensor:
        """Return a rank's input: whole numbers, small enough that float32 sums are exact."""
        count = self._whole.numel()
        pattern = torch.arange(_PERIOD, dtype=torch.float32, device=self._whole.device) + rank + 1
        return pattern.repeat(count // _PERIOD + 1)[:count]

    def _expected(self) -> torch.Tensor:
        """Compute the right result by arithmetic, from the inputs of all ranks."""
        ranks = range(self._world_size)
        if self._step.kind == "broadcast":
            return self._values(ROOT)
        if self._step.kind == "all_gather":
            gathered = torch.empty_like(self._whole)
            for r, share in enumerate(gathered.chunk(self._world_size)):
                share.copy_(self._values(r).chunk(self._world_size)[r])  # one rank's at a time
            return gathered
        # Rank r adds r to rank 0's values.
        total = self._values(0) * self._world_size + sum(ranks)
        scatters = self._step.kind == "reduce_scatter"
        return total.chunk(self._world_size)[self.rank] if scatters else total

    def _compare(self, result: torch.Tensor, expected: torch.Tensor) -> None:
        wrong = result != expected  # NaN differs from everything
        count = int(wrong.sum())
        if count:
            first = int(wrong.nonzero()[0])
            raise CollectiveError(
                f"{self._step.kind} of {size_text(self._step.payload)} gave a wrong result:"
                f" {count:,} of {wrong.numel():,} values, the first at {first:,}:"
                f" {result[first].item():g} instead of {expected[first].item():g}"
            )


ROOT = 0  # of a broadcast

CALLS: dict[str, Callable[[torch.Tensor, torch.Tensor], object]] = {
    "all_reduce": lambda whole, share: dist.all_reduce(whole),
    "broadcast": lambda whole, share: dist.broadcast(whole, ROOT),
    "all_gather": lambda whole, share: all_gather(whole, share, None),
    "reduce_scatter": lambda whole, share: reduce_scatter(share, whole, None),
}
