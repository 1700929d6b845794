"""Process groups of neighbouring ranks, such as the GPUs of one node."""

from __future__ import annotations

import torch.distributed as dist
from torch.distributed import ProcessGroup


def group_within(size: int) -> ProcessGroup:
    """Create the groups 0 to ``size`` − 1, ``size`` to 2·``size`` − 1, …; return this rank's.

    Collective.
    """
    ranks = range(dist.get_world_size())
    return _own([list(ranks[first : first + size]) for first in ranks[::size]])


def group_across(size: int) -> ProcessGroup:
    """Create the groups of ranks with equal places (0, ``size``, …); return this rank's.

    Collective.
    """
    ranks = range(dist.get_world_size())
    return _own([list(ranks[place::size]) for place in range(size)])


def _own(ranks: list[list[int]]) -> ProcessGroup:
    """Create all groups, in the same order on every rank, and return this rank's. Collective."""
    own: ProcessGroup
    own, _ = dist.new_subgroups_by_enumeration(ranks)  # type: ignore[no-untyped-call]
    return own
