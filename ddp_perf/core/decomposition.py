"""Where the time of a step goes: as each rank saw it, and put together for a launch.

All of it is measured on steps that run after the timed ones, so that looking costs them nothing.
"""

from __future__ import annotations

import msgspec

PerStep = tuple[float, ...]  # seconds, one figure for each step looked at

# A step is the sum of these, in the order in which it goes through them.
TERMS = (
    "data",  # waiting for the batch
    "forward",  # with the loss
    "backward",  # of DDP: as long as it takes where nothing is communicated beside it
    "interference",  # of DDP: how much longer it takes with communication beside it
    "optimizer",
    "idle",  # the rank had no core, or slept, in forward, backward or optimizer; on the CPU tier
    "imbalance",  # how much longer than a typical rank's a step's slowest rank's own work takes
    "exposed",  # communication that even the rank that arrives last waits for
)
# Figures that stand beside the terms, and are none.
COMMUNICATION = "communication"  # all of it, nothing beside it: much of it is hidden
COUNTS = ("host_reads", "allocator_retries")  # a step; all other figures are seconds
LAG = "lag"  # how much longer the mean work of one rank takes than a typical rank's


class RankPhases(msgspec.Struct, frozen=True, kw_only=True):
    """One rank's way through its steps. The phases do not overlap: their sum is the step."""

    data: PerStep
    forward: PerStep
    backward: PerStep
    optimizer: PerStep
    idle: PerStep  # in forward and optimizer, and not part of them; on the CPU tier
    waiting: PerStep  # for collectives that the training code itself waited for
    exposed: PerStep  # for DDP's last buckets, after the last gradient; DDP's own figure


class RankProbe(msgspec.Struct, frozen=True, kw_only=True):
    """What one rank saw of itself, once the timed steps were over."""

    phases: RankPhases
    # CPU time of the process in the backward, communication threads included; empty: not known.
    backward_cpu: PerStep = ()
    unsynchronised_backward: PerStep = ()  # of DDP's steps when gradients stay where they are
    unsynchronised_idle: PerStep = ()  # in those backwards, and not part of them; on the CPU tier
    communication: PerStep = ()  # the collectives of a step, alone; empty: cannot be repeated
    host_reads: int = 0  # values of a step that the host waited for, as by .item()
    allocator_retries: float = 0.0  # a step: a GPU's memory was full, its cache was given back
    sees_communication: bool = True  # False: its wait is hidden in the phases (FSDP on a GPU)


class RankShare(msgspec.Struct, frozen=True, kw_only=True):
    """One rank's part in a step. Before the collective ranks differ; after it all look alike."""

    own_s: float  # its work, from the batch to the optimizer
    waits_s: float  # for communication, and for the ranks that come later
    last_share: float  # of the steps: how often its work took longest


class Decomposition(msgspec.Struct, frozen=True, kw_only=True):
    """A launch's typical step. Seconds."""

    terms: dict[str, float]  # by the names of TERMS
    step_s: float  # of the steps looked at: what the terms must add up to
    communication_s: float | None  # all collectives of a step, nothing beside them
    host_reads: int  # values of a step that a host waited for
    allocator_retries: float  # a step
    sees_communication: bool  # False: what is exposed is within forward and backward
    ranks: tuple[RankShare, ...]

    @property
    def slowest_rank(self) -> int:
        """The one whose own work takes longest."""
        return max(range(len(self.ranks)), key=lambda rank: self.ranks[rank].own_s)

    @property
    def slowest_share(self) -> float:
        """Of the steps: how often that rank comes last."""
        return self.ranks[self.slowest_rank].last_share

    @property
    def lag_s(self) -> float:
        """How much longer its work takes than a typical rank's (the median one's, the lower of
        two). The term ``imbalance`` is this, and what ranks that come late in turn add to it.
        """
        return max(self._behind_s())

    @property
    def lagging_ranks(self) -> tuple[int, ...]:
        """The slowest rank, and those that lag by half as much at least."""
        least = self.lag_s / 2
        return tuple(rank for rank, behind in enumerate(self._behind_s()) if behind >= least > 0)

    def _behind_s(self) -> list[float]:
        """Of each rank: behind the typical one."""
        own = [rank.own_s for rank in self.ranks]
        typical = sorted(own)[(len(own) - 1) // 2]
        return [one - typical for one in own]

    @property
    def explained_s(self) -> float:
        return sum(self.terms.values())

    def figures(self) -> dict[str, float]:
        """As a baseline stores them: by the names of TERMS and of what stands beside them."""
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
        """Of all communication, how much costs the step nothing: it went on beside computation.
        Below 0 where it costs more than it takes alone. None: not known, or nothing to hide.
        """
        if not self.communication_s or not self.sees_communication:
            return None
        return 1 - (self.terms["exposed"] + self.terms["interference"]) / self.communication_s
