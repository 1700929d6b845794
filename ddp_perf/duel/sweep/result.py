"""The result of a sweep: each setting beside the suite's own, and how sure the best one is."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from ddp_perf.core.duel import DuelOutcome, PairedVerdict
from ddp_perf.duel.sweep.halving import ALPHA, WORTH, SweepBlock, SweepRun
from ddp_perf.duel.sweep.settings import LeftOut, Setting
from ddp_perf.launch.launcher import Runtime
from ddp_perf.stats.duel.best_of import best_chances
from ddp_perf.stats.paired import PairedRatio, ratio_of_positive


class SettingResult(msgspec.Struct, frozen=True, kw_only=True):
    """One setting. Step times are those of as many samples as the suite's own step has."""

    name: str
    changes: dict[str, Any]  # of the suite, by field
    launches: int
    step_s: float | None  # median over its launches; None: it was not measured
    # Its step ÷ that of the suite's own setting, over the blocks that it was in; 95 % interval.
    ratio: PairedRatio | None
    dropped: int | None  # rung at whose end it was dropped; None: it was not
    failure: str | None  # of a launch, after which it was not launched again
    chance: float | None  # probability that it is the fastest; None: not known


class SweepResult(msgspec.Struct, frozen=True, kw_only=True):
    """A whole sweep, or what an interrupted one measured."""

    schema_version: Literal[1] = 1
    case_id: str
    suite: str
    began: str  # ISO 8601, UTC
    wall_s: float
    budget_s: float
    runtime: Runtime
    rungs: int  # planned
    base_step_s: float | None  # of the suite's own setting: median over its launches
    base_launches: int
    base_chance: float | None  # probability that it is the fastest
    settings: tuple[SettingResult, ...]  # the one that lasted longest first
    left_out: tuple[LeftOut, ...]
    best: str | None  # a setting; None: the suite's own, or too little was measured
    verdict: PairedVerdict | None  # on the last setting, by the last rung alone; None: not reached
    alpha: float = ALPHA  # of FASTER, and as much of SLOWER
    tolerance: float = WORTH  # within which the settings are EQUIVALENT, as a fraction
    complete: bool

    @property
    def is_faster(self) -> bool:
        """True if the launches of the last rung show that the best setting is faster."""
        return self.verdict is not None and self.verdict.outcome is DuelOutcome.FASTER


def sweep_result(
    run: SweepRun, *, began: str, wall_s: float, budget_s: float, runtime: Runtime
) -> SweepResult:
    """Return what the launches of a sweep show."""
    base, blocks = run.settings.base, run.blocks
    base_chance, chances = _chances(blocks)
    results = [_result(run, setting, chances.get(setting.name)) for setting in run.settings.tried]
    return SweepResult(
        case_id=base.id,
        suite=base.suite,
        began=began,
        wall_s=wall_s,
        budget_s=budget_s,
        runtime=runtime,
        rungs=run.rungs,
        base_step_s=statistics.median(b.base_s for b in blocks) if blocks else None,
        base_launches=len(blocks),
        base_chance=base_chance,
        settings=tuple(sorted(results, key=_place)),
        left_out=run.settings.left_out,
        best=_best(run),
        verdict=run.verdict,
        complete=run.complete,
    )


def _chances(blocks: Sequence[SweepBlock]) -> tuple[float | None, dict[str, float]]:
    """Return the probability of being the fastest, of the suite's own setting and of the others."""
    if len(blocks) < 2:
        return None, {}
    names = list(dict.fromkeys(name for block in blocks for name in block.step_s))
    rows = [[math.log(b.base_s), *(_log(b.step_s.get(name)) for name in names)] for b in blocks]
    base, *others = best_chances(rows)
    return base, dict(zip(names, others, strict=True))


def _log(value: float | None) -> float | None:
    return None if value is None else math.log(value)


def _result(run: SweepRun, setting: Setting, chance: float | None) -> SettingResult:
    beside = [block for block in run.blocks if setting.name in block.step_s]
    own = [block.step_s[setting.name] for block in beside]
    failure = run.failures.get(setting.name)
    return SettingResult(
        name=setting.name,
        changes=setting.changes,
        launches=len(own),
        step_s=statistics.median(own) if own else None,
        ratio=ratio_of_positive(own, [block.base_s for block in beside]),
        dropped=run.dropped.get(setting.name),
        failure=failure.detail if failure is not None else None,
        chance=chance,
    )


def _place(result: SettingResult) -> tuple[bool, float, float]:
    """Return the key by which the setting that lasted longest is the first one."""
    ratio = result.ratio.ratio if result.ratio is not None else math.inf
    return result.failure is not None, -(result.dropped or math.inf), ratio


def _best(run: SweepRun) -> str | None:
    """Return the last setting if it beat the suite's own in the last rung, or is not judged yet."""
    if len(run.remaining) != 1:
        return None
    (last,) = run.remaining
    if run.verdict is None or run.verdict.ratio is None or run.verdict.ratio >= 1:
        return None
    return last.name
