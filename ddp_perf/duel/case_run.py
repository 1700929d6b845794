"""One case of a duel while it runs: what is measured, planned and judged so far."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence

from msgspec.structs import replace

from ddp_perf.core.injection import Injection
from ddp_perf.core.launch import LaunchFailure, LaunchRequest, LaunchResult
from ddp_perf.duel.case_plan import CasePlan, plan_case, sights_of
from ddp_perf.duel.explained import structure_difference
from ddp_perf.duel.figures import figures_of, summaries_of_aa
from ddp_perf.duel.judge_case import is_decided, judge_case
from ddp_perf.duel.launching import Turn, launch_turns
from ddp_perf.duel.open_sides import OpenSide
from ddp_perf.duel.values import CaseDuel, Pair, SideCase, SideFailure, SideName


class CaseRun:
    """A case of a duel: `duel` is its result so far, and `is_open` whether it needs more pairs."""

    def __init__(
        self,
        cases: SideCase,
        a: OpenSide,
        b: OpenSide,
        *,
        calibrated: Sequence[LaunchResult] = (),
        injections: tuple[Injection, ...] = (),
    ) -> None:
        self.duel = CaseDuel(cases=cases, aa=tuple(calibrated))
        self.is_open = True
        self._sides = (a, b)
        self._injections: dict[SideName, tuple[Injection, ...]] = {"A": (), "B": injections}
        self._plan: CasePlan | None = None
        # Of a launch of one side, as the calibration has shown it.
        self._launch_s = min((launch.wall_s for launch in calibrated), default=None)
        self._pair_s: float | None = None

    @property
    def calibrated(self) -> int:
        """The number of launches of one side that show how launches differ."""
        return len(self.duel.aa)

    @property
    def id(self) -> str:
        return self.duel.id

    @property
    def single(self) -> str | None:
        """The id of its one-rank case."""
        return self.duel.cases.b.single

    @property
    def launch_s(self) -> float | None:
        """Seconds of a launch of side A; None: it was not launched yet."""
        return self._launch_s

    @property
    def pair_s(self) -> float:
        """About the seconds of the next pair. Of side B nothing is known before the first one."""
        return self._pair_s if self._pair_s is not None else 2 * (self._launch_s or 0.0)

    def calibrate(self, number: int) -> None:
        """Run a launch of side A. Raises LaunchError if ranks cannot be started."""
        side = self._sides[0]
        # Every other launch trains from other addresses: those of a pair are of one kind, as all of
        # these are.
        request = LaunchRequest(
            case=self.duel.cases.a, round=2 * number, import_paths=side.import_paths
        )
        began = time.monotonic()
        outcome = side.launcher.launch(request)
        seconds = time.monotonic() - began
        if isinstance(outcome, LaunchFailure):
            self._fail("A", outcome)
            return
        self._launch_s = min(seconds, self._launch_s or seconds)
        self.duel = replace(self.duel, aa=(*self.duel.aa, outcome))

    def plan(
        self, *, most: int, rate: float, tolerance: float | None, with_single: bool
    ) -> CasePlan:
        """Plan the verdicts by the calibration, with room for ``most`` pairs."""
        case, aa = self.duel.cases.b, summaries_of_aa(self.duel)
        self._plan = plan_case(
            case,
            aa,
            most=most,
            rate=rate,
            tolerance=tolerance,
            with_single=with_single,
            may_use_cpu_time=self.duel.cases.a.threads_per_rank == case.threads_per_rank,
        )
        self.duel = replace(self.duel, sights=sights_of(case, aa, self._plan))
        return self._plan

    def launch_pair(self, block: int, order: random.Random) -> None:
        """Run a launch of each side, in random order. Raises LaunchError."""
        turns = [
            Turn(
                side.launcher,
                self.duel.cases.of(side.name),
                side.import_paths,
                self._injections[side.name],
            )
            for side in self._sides
        ]
        places: list[int] = []
        began = time.monotonic()
        a, b = launch_turns(turns, block=block, order=order, on_turn=places.append)
        self._pair_s = time.monotonic() - began
        if isinstance(a, LaunchResult) and isinstance(b, LaunchResult):
            pair = Pair(case_id=self.id, block=block, first=self._sides[places[0]].name, a=a, b=b)
            self.duel = replace(self.duel, pairs=(*self.duel.pairs, pair))
            return
        for side, outcome in zip(self._sides, (a, b), strict=True):
            if isinstance(outcome, LaunchFailure):
                self._fail(side.name, outcome)

    def judge(self, single: CaseDuel | None, *, ended: bool) -> None:
        """Judge the pairs so far, if it is time to look at them, or if they have ``ended``.

        ``single`` is its one-rank case, if that takes part.
        """
        if self._plan is None or not self.duel.pairs:
            return
        looks, pairs = self._plan.looks, len(self.duel.pairs)
        ended = ended or pairs >= looks[-1]
        if not (ended or pairs in looks):
            return
        metrics = judge_case(self.id, figures_of(self.duel, single), self._plan, ended=ended)
        structure = structure_difference(self.duel)
        self.duel = replace(self.duel, metrics=metrics, structure=structure)
        if ended or is_decided(metrics):
            self.is_open = False

    def _fail(self, side: SideName, failure: LaunchFailure) -> None:
        found = SideFailure(side=side, failure=failure)
        self.duel = replace(self.duel, failures=(*self.duel.failures, found))
        self.is_open = False
