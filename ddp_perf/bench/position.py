"""The position of this process among the ranks, from the variables that torchrun sets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from ddp_perf.errors import LaunchError
from ddp_perf.render.units import counted

_NUMBERS = ("RANK", "LOCAL_RANK", "WORLD_SIZE")


class Position(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers of a rank, and of all ranks and nodes; by default a process by itself."""

    rank: int = 0
    local_rank: int = 0
    world_size: int = 1
    nodes: int = 1
    alone: bool = True
    states_nodes: bool = True  # False: nothing states the nodes, and one is assumed


def position_of(environ: Mapping[str, str]) -> Position:
    """Return the position of this process. Without RANK it is alone.

    Raises LaunchError if nodes have different numbers of ranks, or variables lack.
    """
    if "RANK" not in environ:
        return Position()
    wrong = [name for name in _NUMBERS if not environ.get(name, "").isdecimal()]
    if wrong:
        raise LaunchError(
            f"RANK is set, and {', '.join(wrong)} is missing or no number: start the ranks by"
            " torchrun, or unset RANK"
        )
    world_size = int(environ["WORLD_SIZE"])
    ranks_here = int(environ.get("LOCAL_WORLD_SIZE", world_size))
    nodes = int(environ.get("GROUP_WORLD_SIZE", world_size // ranks_here))
    if nodes * ranks_here != world_size:
        raise LaunchError(
            f"this node has {ranks_here} of {counted(world_size, 'rank')} on {nodes} nodes; give"
            " torchrun the same --nproc_per_node on each node"
        )
    return Position(
        rank=int(environ["RANK"]),
        local_rank=int(environ["LOCAL_RANK"]),
        world_size=world_size,
        nodes=nodes,
        alone=False,
        states_nodes=not {"LOCAL_WORLD_SIZE", "GROUP_WORLD_SIZE"}.isdisjoint(environ),
    )


def position_on(position: Position, hosts: Sequence[str]) -> Position:
    """Return the position with the number of nodes that the hosts of all ranks show, by rank.

    Raises LaunchError if the hosts have different numbers of ranks, or ranks in turn.
    """
    nodes = len(set(hosts))
    ranks_here = position.world_size // nodes
    blocks = [set(hosts[first : first + ranks_here]) for first in range(0, len(hosts), ranks_here)]
    if len(blocks) != nodes or any(len(block) > 1 for block in blocks):
        raise LaunchError(
            f"the ranks run on {', '.join(hosts)}: give each host as many, one after the other; or"
            " start the ranks by torchrun"
        )
    return msgspec.structs.replace(position, nodes=nodes)
