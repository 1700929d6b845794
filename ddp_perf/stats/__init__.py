"""Pure functions on numbers. The public functions are imported only when they are first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddp_perf.core.verdict import Verdict
from ddp_perf.stats.level import launch_level

if TYPE_CHECKING:
    from ddp_perf.stats.rule.comparison import JudgeOptions
    from ddp_perf.stats.rule.judge import judge_launches
else:

    def __getattr__(name: str) -> object:
        if name not in ("JudgeOptions", "judge_launches"):
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        # It imports numpy and scipy: 0.2 s that the collection of cases must not take.
        from ddp_perf.stats.rule import judge

        return getattr(judge, name)


__all__ = ["JudgeOptions", "Verdict", "judge_launches", "launch_level"]
