"""The decomposition of a step into terms: the readings of each rank, and their sum for a launch.

All readings are from steps that run after the timed ones, so the timed steps are not disturbed.
"""

from __future__ import annotations

import msgspec

PerStep = tuple[float, ...]  # seconds, one figure for each probed step

# The step time is the sum of these terms, in the order of a step.
TERMS = (
    "data",  # wait for the batch
    "forward",  # with the loss
    "backward",  # of DDP: without communication at the same time
    "interference",  # of DDP: overlap slow-down, the extra backward time beside communication
    "optimizer",
    "idle",  # the rank had no core, or slept, in forward, backward or optimizer; CPU tier only
    "imbalance",  # own work of the slowest rank of each step − own work of a typical rank
    "exposed",  # exposed communication: the part that even the last rank to arrive waits for
)
# Figures beside the terms; they are not part of the sum.
COMMUNICATION = "communication"  # all collectives of a step, run without computation
COUNTS = ("host_reads", "allocator_retries")  # a step; all other figures are seconds
LAG = "lag"  # straggler delay: mean own work of the slowest rank − that of a typical rank


class RankPhases(msgspec.Struct, frozen=True, kw_only=True):
    """The phases of one rank's steps. They do not overlap: their sum is the step time."""

    data: PerStep
    forward: PerStep
    backward: PerStep
    optimizer: PerStep
    idle: PerStep  # in forward and optimizer, but not counted there; CPU tier only
    waiting: PerStep  # blocked in collectives of the training code itself
    exposed: PerStep  # blocked in DDP's last buckets, after the last gradient; DDP reports it


class RankProbe(msgspec.Struct, frozen=True, kw_only=True):
    """The probe of one rank: its readings of the steps after the timed ones."""

    phases: RankPhases
    # CPU time of the process in the backward, with its communication threads; empty: unknown.
    backward_cpu: PerStep = ()
    unsynchronised_backward: PerStep = ()  # of DDP without its all-reduce
    unsynchronised_idle: PerStep = ()  # in these backwards, but not counted there; CPU tier only
    communication: PerStep = ()  # collectives of a step without computation; empty: not repeatable
    host_reads: int = 0  # GPU values in a step that the host waited for, as in .item()
    host_waits: int | None = None  # of the host for the GPU in a step; None: unknown, or no GPU
    allocator_retries: float = 0.0  # per step: GPU memory was full, so the cache was freed
    sees_communication: bool = True  # False: its wait is part of other phases (FSDP on a GPU)
    emulated_ranks: int | None = None  # of an emulated case: those that it runs as one of


class RankShare(msgspec.Struct, frozen=True, kw_only=True):
    """One rank's part of a step. Ranks differ before a collective, and end it together."""

    own_s: float  # its own work, from the batch to the optimizer
    waits_s: float  # blocked by communication, and by ranks that arrive later
    last_share: float  # share of the steps in which its own work took longest


class Decomposition(msgspec.Struct, frozen=True, kw_only=True):
    """The typical step of a launch, by terms. Seconds."""

    terms: dict[str, float]  # by the names of TERMS
    step_s: float  # of the probed steps: the terms must add up to it
    communication_s: float | None  # all collectives of a step, without computation
    host_reads: int  # GPU values in a step that a host waited for
    allocator_retries: float  # per step
    sees_communication: bool  # False: exposed communication is within forward and backward
    ranks: tuple[RankShare, ...]

    @property
    def slowest_rank(self) -> int:
        """The rank whose own work takes longest."""
        return max(range(len(self.ranks)), key=lambda rank: self.ranks[rank].own_s)

    @property
    def slowest_share(self) -> float:
        """Straggler frequency: the share of the steps in which the slowest rank arrives last."""
        return self.ranks[self.slowest_rank].last_share

    @property
    def lag_s(self) -> float:
        """Straggler delay: own work of the slowest rank − own work of a typical rank, in seconds.

        The typical rank is the median one (the lower one of two). The term ``imbalance`` is this
        delay and, added to it, the delays of other ranks in the steps in which they arrive last.
        """
        return max(self._behind_s())

    @property
    def lagging_ranks(self) -> tuple[int, ...]:
        """The slowest rank, and the ranks with at least half of its delay."""
        least = self.lag_s / 2
        return tuple(rank for rank, behind in enumerate(self._behind_s()) if behind >= least > 0)

    def _behind_s(self) -> list[float]:
        """Return the delay of each rank behind the typical one, in seconds."""
        own = [rank.own_s for rank in self.ranks]
        typical = sorted(own)[(len(own) - 1) // 2]
        return [one - typical for one in own]

    @property
    def explained_s(self) -> float:
        return sum(self.terms.values())

    def figures(self) -> dict[str, float]:
        """Return the terms and the figures beside them by name, as a baseline stores them."""
        beside: dict[str, float] = {
            LAG: self.lag_s,
            "host_reads": self.host_reads,
            "allocator_retries": self.allocator_retries,
        }
        if self.communication_s is not None:
            beside[COMMUNICATION] = self.communication_s
        return {**self.terms, **beside}

    @property
    def hidden_share(self) -> float | None:
        """Overlap ratio: the share of all communication that does not lengthen the step.

        It is below 0 if communication costs more beside computation than alone. None: unknown, or
        there is no communication.
        """
        if not self.communication_s or not self.sees_communication:
            return None
        cost_s = self.terms["exposed"] + max(0.0, self.terms["interference"])
        return 1 - cost_s / self.communication_s
