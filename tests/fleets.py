"""A simulated fleet: nodes that differ for good, from day to day, and from launch to launch."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np

from ddp_perf.core.launch import LaunchFailure, LaunchRequest, LaunchResult
from ddp_perf.session.result import SuiteResult
from tests.builders import FakeLauncher, make_capacity, make_cases, make_failure, make_launch
from tests.suites import make_bench, measure_suite

CASES = tuple(make_cases(launches=3, tolerances={"step_time": 0.03}))
ONE, TWO = CASES
Law = Literal["normal", "t3", "slow launches"]  # t3: Student's t with 3 df, of the same sd
SLOW_SHARE, SLOW_BY = 0.01, 1.2  # of the launches in a slow mode
NODE_SD, SESSION_SD, VISIT_SD, LAUNCH_SD = 0.008, 0.004, 0.003, 0.003  # of logs


def names(count: int, first: int = 1) -> tuple[str, ...]:
    return tuple(f"n{number}" for number in range(first, first + count))


class Fleet:
    """A fleet with one session a day. Each session is stored, and judges the next one."""

    def __init__(
        self,
        directory: Path,
        *,
        seed: int,
        law: Law = "normal",
        pool: str | None = "fleet",
        **options: Any,
    ) -> None:
        self.directory, self.law, self.options = directory, law, options
        self.capacity = msgspec.structs.replace(make_capacity(), pool=pool)
        self.random = np.random.default_rng(seed)
        self.of_nodes: dict[str, float] = {}
        self.launchers: list[FakeLauncher] = []

    def __call__(
        self,
        nodes: Sequence[str] = names(8),
        *,
        code: float = 1.0,
        slower: dict[str, float] | None = None,
        fails: Callable[[LaunchRequest], bool] = lambda request: False,
        launch: Callable[[LaunchRequest], float] = lambda request: 1.0,
        each_node: bool = True,
        **request: Any,
    ) -> SuiteResult:
        """Measure a session.

        ``code``, ``slower`` and ``launch`` are factors of all steps, of a node's and of a launch's.
        """
        session = self._draw(SESSION_SD)
        visits: dict[str, float] = {}

        def answer(request: LaunchRequest) -> LaunchResult | LaunchFailure:
            if fails(request):
                return make_failure(request.case, request.round)
            node = request.node or nodes[0]
            if node not in visits:
                for_good = self.of_nodes.setdefault(node, self.random.normal(0, NODE_SD))
                visits[node] = for_good + self._draw(VISIT_SD)
            log = session + visits[node] + self._draw(LAUNCH_SD)
            step_s = 0.01 * request.case.world_size * code * (slower or {}).get(node, 1.0)
            step_s *= launch(request)
            if self.law == "slow launches" and self.random.random() < SLOW_SHARE:
                step_s *= SLOW_BY
            return make_launch(request.case, request.round, step_s=step_s * float(np.exp(log)))

        self.launchers.append(FakeLauncher(answer))
        bench = make_bench(
            self.directory, self.launchers[-1], nodes=tuple(nodes), each_node=each_node
        )
        fields = {"cases": CASES, "alpha": 0.001, "save_mode": "append", **self.options, **request}
        return measure_suite(bench, capacity=self.capacity, **fields)

    def _draw(self, sd: float) -> float:
        if self.law == "t3":
            return sd * float(self.random.standard_t(3)) / math.sqrt(3)
        return float(self.random.normal(0, sd))

    def days(self, count: int, **session: Any) -> list[SuiteResult]:
        return [self(**session) for _ in range(count)]


def of_code(result: SuiteResult) -> set[str]:
    """Return the outcomes of the code."""
    return {found.verdict.outcome.value for found in result.findings if found.metric != "nodes"}


def bad_nodes(result: SuiteResult) -> set[str]:
    """Return the names of the nodes that are red."""
    nodes = itertools.chain.from_iterable(found.nodes for found in result.findings)
    return {one.node for one in nodes if (one.is_slow and not one.is_suspect) or one.failure}
