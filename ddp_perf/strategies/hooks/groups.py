"""Ranks in groups of neighbours: the GPUs of a node, or any grouping that stands for nodes."""

from __future__ import annotations

import torch.distributed as dist
from torch.distributed import ProcessGroup


def group_within(size: int) -> ProcessGroup:
    """This rank's neighbours: ranks 0 to ``size`` − 1, ``size`` to 2·``size`` − 1, …"""
    ranks = range(dist.get_world_size())
    return _own([list(ranks[first : first + size]) for first in ranks[::size]])


def group_across(size: int) -> ProcessGroup:
    """The ranks at the same place in every group: 0, ``size``, 2·``size``, …"""
    ranks = range(dist.get_world_size())
    return _own([list(ranks[place::size]) for place in range(size)])


def _own(ranks: list[list[int]]) -> ProcessGroup:
    """Collective: every rank makes all groups, in the same order."""
    own: ProcessGroup
    own, _ = dist.new_subgroups_by_enumeration(ranks)  # type: ignore[no-untyped-call]
    return own
