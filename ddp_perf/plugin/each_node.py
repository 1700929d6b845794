"""The conditions of each_node in a cluster file, which are checked before the first launch."""

from __future__ import annotations

from collections.abc import Sequence

from ddp_perf.core.case import Case
from ddp_perf.errors import ConfigError, LaunchError


def check_pool(pool: str | None, cases: Sequence[Case]) -> None:
    """Refuse cases of the CPU tier without the name that the baseline of all nodes has.

    A baseline of GPUs is that of their type, which all nodes share. Raises ConfigError.
    """
    if pool is None and any(case.tier == "cpu" for case in cases):
        raise ConfigError(
            "each_node: the nodes share one baseline; name it with --ddp-machine NAME"
        )


def check_nodes(nodes: Sequence[str]) -> None:
    """Refuse a launcher that cannot send a launch to one of several nodes. Raises LaunchError."""
    if len(nodes) < 2:
        found = f"{nodes[0]} alone" if nodes else "this machine alone"
        raise LaunchError(
            f"each_node: the launcher has {found}; give it two nodes or more, as with launcher:"
            " torchrun and hosts: [a, b]"
        )
