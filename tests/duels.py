"""Duels for tests: pairs of launches, verdicts, and whole duels with every outcome."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ddp_perf.core.case import Case
from ddp_perf.core.verdict import DuelOutcome, PairedVerdict
from ddp_perf.duel.values import (
    CaseDuel,
    Duel,
    MetricDuel,
    Pair,
    Side,
    SideCase,
    SideConditions,
    SideFailure,
    SideName,
)
from ddp_perf.launch.launcher import Runtime
from tests.builders import make_case, make_environment, make_failure, make_launch, make_probe

MAIN = Side(name="A", spec="main", kind="revision", label="main (3f2a1c9)", commit="3f2a1c9" * 5)
TREE = Side(
    name="B",
    spec=".",
    kind="tree",
    label="the working tree (9d8e7f6 with uncommitted changes)",
    commit="9d8e7f6" * 5,
)


def make_pairs(case: Case, steps_s: Sequence[tuple[float, float]], **rank: Any) -> tuple[Pair, ...]:
    """Return a pair for each pair of seconds; ``rank``: changes of the results of both sides."""
    return tuple(
        Pair(
            case_id=case.id,
            block=block,
            first="A" if block % 2 else "B",
            a=make_launch(case, block, step_s=a, **rank),
            b=make_launch(case, block, step_s=b, **rank),
        )
        for block, (a, b) in enumerate(steps_s)
    )


def make_metric_duel(case: Case, outcome: DuelOutcome, **changes: Any) -> MetricDuel:
    """Return a verdict on the step time; ``ratio``, ``more_pairs`` and so on go to its verdict."""
    verdict = {
        name: changes.pop(name) for name in PairedVerdict.__struct_fields__ if name in changes
    }
    shown = {"reason": "because", "pairs": 4, "ratio": 1.0, "interval": (0.99, 1.01)}
    fields: dict[str, Any] = {
        "case_id": case.id,
        "metric": "step_time",
        "verdict": PairedVerdict(outcome=outcome, **{**shown, **verdict}),
        "a": 0.010,
        "b": 0.010,
        "tolerance": 0.05,
        "decides": True,
    }
    return MetricDuel(**{**fields, **changes})


def make_case_duel(outcome: DuelOutcome, case: Case | None = None, **changes: Any) -> CaseDuel:
    """Return a case with four pairs and one verdict on its step; SLOWER by a tenth."""
    case = case or make_case()
    factor = {DuelOutcome.SLOWER: 1.1, DuelOutcome.FASTER: 0.9}.get(outcome, 1.0)
    ratio: dict[str, Any] = {
        "ratio": factor,
        "interval": (factor - 0.02, factor + 0.02),
        "b": 0.01 * factor,
        "minimum_detectable": 0.031,
    }
    steps = [(0.0100, 0.0100 * factor), (0.0101, 0.0101 * factor)] * 2
    fields: dict[str, Any] = {
        "cases": SideCase(a=case, b=case),
        "pairs": make_pairs(case, steps, probe=make_probe()),
        "metrics": (make_metric_duel(case, outcome, **ratio),),
        "work": (),
    }
    return CaseDuel(**{**fields, **changes})


def make_side_failure(side: SideName, case: Case, **changes: Any) -> SideFailure:
    return SideFailure(side=side, failure=make_failure(case, **changes))


def make_conditions(*, torch: str = "2.13.0", **environment: Any) -> SideConditions:
    runtime = Runtime(python="3.11.2", torch=torch, cuda=None, cudnn=None, nccl=None, blas="mkl")
    return SideConditions(runtime=runtime, environment=make_environment(torch=torch, **environment))


def make_duel(*cases: CaseDuel, **changes: Any) -> Duel:
    """Return a complete duel of main against the tree."""
    fields: dict[str, Any] = {
        "a": MAIN,
        "b": TREE,
        "began": "2026-01-02T03:04:05+00:00",
        "wall_s": 160.0,
        "budget_s": 180.0,
        "false_alarm_rate": 0.02,
        "alpha": 0.01,
        "cases": cases,
    }
    return Duel(**{**fields, **changes})
