"""The steps of a group of ranks: apart from the figures made of them, since progress needs no more
and is imported at collection.
"""

from __future__ import annotations

from ddp_perf.core.result import LaunchResult


def group_steps(launch: LaunchResult) -> list[float]:
    """Seconds of each measured step: the slowest rank decides, step by step."""
    return [max(steps) for steps in zip(*(rank.step_s for rank in launch.ranks), strict=True)]
