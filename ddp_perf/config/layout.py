"""The layout of a case: its number of nodes, and the part of its id that states it."""

from __future__ import annotations

from collections.abc import Iterable

from ddp_perf.errors import ConfigError
from ddp_perf.render.units import counted


def node_count(world_size: int, ranks_per_node: int | None) -> int:
    """Return the nodes that a case has, with as many ranks on each; `check_layout` is before it.

    A case fills its first node before it has a second one. None: every case has one node.
    """
    return 1 if ranks_per_node is None else max(1, world_size // ranks_per_node)


def layout_name(world_size: int, nodes: int) -> str:
    """Return the part of an id: ``ws8`` on one node, ``ws16-2x8`` on two with 8 ranks each."""
    return f"ws{world_size}" + (f"-{nodes}x{world_size // nodes}" if nodes > 1 else "")


def check_layout(world_sizes: Iterable[int], ranks_per_node: int | None) -> None:
    """Raise ConfigError for the first world size that would leave a node with fewer ranks."""
    for world_size in world_sizes:
        if (
            ranks_per_node is not None
            and world_size > ranks_per_node
            and world_size % ranks_per_node
        ):
            raise ConfigError(
                f"world_sizes: {counted(world_size, 'rank')} cannot share nodes of"
                f" {ranks_per_node} ranks evenly; choose another --ddp-world-sizes or"
                " nproc_per_node of the cluster file"
            )
