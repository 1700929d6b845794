"""Both sides of a duel with played launchers and a played clock: no rank runs."""

from __future__ import annotations

import math
import random
import sys
from pathlib import Path

from ddp_perf.core.verdict import DuelOutcome
from ddp_perf.duel.cases import MatchedCases
from ddp_perf.duel.open_sides import OpenSide
from ddp_perf.duel.run import DuelRequest, run_duel
from ddp_perf.duel.values import PreparedSide, Side, SideCase
from ddp_perf.errors import LaunchError
from tests.builders import CPU_S, FakeLauncher, make_capacity, make_failure, make_launch
from tests.works import SITE, make_work

LAUNCH_S = 1.0


def make_prepared(name: str, root: Path = Path("project"), **changes) -> PreparedSide:
    """Return a side that is a command: nobody reads its packages."""
    fields = {
        "side": Side(name=name, spec=".", kind="tree", label="the tree"),
        "root": root,
        "interpreter": sys.executable,
        "environ": {},
        "package": Path("package"),
        "command": "{command}",
    }
    return PreparedSide(**{**fields, **changes})


class PlayedSide(FakeLauncher):
    """The launcher of a side whose steps take 10 ms × `slower`, give or take `noise`.

    The injections of a launch slow its steps and their CPU time, which has the noise `cpu_noise`.
    `fails_at`: the number of the launch that fails; `peak`: bytes; `stall_s`: of one step of each
    launch; `launch_s`, `start_s`, `count_s`: of the clock, for a launch, the start of a server, and
    a count; `cannot_restart`: its servers do not start again; `work`, `site`: how many operations
    are counted, and where. `counted` are the ids of counted cases, `ends` how often servers ended.
    """

    def __init__(self, clock, seed, *, slower=1.0, noise=0.01, cpu_noise=None, cpu=1.0, **changes):
        super().__init__(self._launch)
        self.clock = clock
        self.work = changes.pop("work", 1)
        self._site = changes.pop("site", SITE)
        self._random = random.Random(seed)
        self._slower, self._noise, self._cpu_noise, self._cpu = slower, noise, cpu_noise, cpu
        self._changes = {"fails_at": None, "peak": 1000, "launch_s": LAUNCH_S, **changes}
        self._warm = set()  # the environments of the servers that run
        self.counted = []
        self.ends = 0

    def runtime(self, case=None):
        if self.ends and self._changes.get("cannot_restart"):
            raise LaunchError("no such image")
        environment = frozenset(case.env.items())
        if environment not in self._warm:
            self.clock.now += self._changes.get("start_s", 0.0)
            self._warm.add(environment)
        return super().runtime(case)

    def close(self):
        self._warm.clear()
        self.ends += 1

    def count(self, request):
        self.clock.now += self._changes.get("count_s", 0.0)
        self.counted.append(request.case.id)
        if self._changes.get("cannot_count"):
            raise LaunchError("no server")
        return make_work((self._site, {"count": self.work}))

    def _launch(self, request):
        self.runtime(request.case)
        self.clock.now += self._changes["launch_s"]
        if self._changes.get("interrupt_at") == len(self.asked):
            raise KeyboardInterrupt
        if self._changes["fails_at"] == len(self.asked):
            return make_failure(request.case, request.round, output="what the rank printed")
        injected = math.prod(1 + one.amount for one in request.injections)
        slower = self._slower.get(request.case.id, 1.0) if isinstance(self._slower, dict) else None
        step_s = 0.01 * (self._slower if slower is None else slower) * self._draw(self._noise)
        step_s *= injected
        cpu_s = (
            CPU_S
            * self._cpu
            * injected
            * self._draw(self._noise if self._cpu_noise is None else self._cpu_noise)
        )
        last = request.case.schedule.measured - 1
        return make_launch(
            request.case,
            request.round,
            step_s=(step_s,) * last + (step_s + self._changes.get("stall_s", 0.0),),
            cpu_s=(cpu_s,) * request.case.schedule.measured,
            peak_memory=self._changes["peak"],
        )

    def _draw(self, noise):
        return self._random.lognormvariate(0.0, noise)


class Clock:
    """The monotonic clock, which only launches advance."""

    def __init__(self, monkeypatch):
        self.now = 0.0
        monkeypatch.setattr("time.monotonic", lambda: self.now)


def play(
    clock,
    a,
    b,
    cases,
    *,
    seed=1,
    missing=(),
    spare=(),
    updates=None,
    package="package",
    log=None,
    **request,
):
    """Run a duel of played sides, and return it. `package` is the ddp_perf of side B."""
    sides = (
        OpenSide(make_prepared("A"), a),
        OpenSide(make_prepared("B", package=Path(package)), b),
    )
    both = [case if isinstance(case, SideCase) else SideCase(a=case, b=case) for case in cases]
    matched = MatchedCases(cases=tuple(both), missing=tuple(missing), spare=tuple(spare))
    notes = [] if updates is None else updates
    return run_duel(
        DuelRequest(matched=matched, seed=seed, **request),
        *sides,
        make_capacity(),
        on_update=notes.append,
        log=log,
    )


def outcomes(duel):
    return {case.id: case.outcome for case in duel.cases}


SLOWER, FASTER, EQUIVALENT, UNDECIDED = (
    DuelOutcome.SLOWER,
    DuelOutcome.FASTER,
    DuelOutcome.EQUIVALENT,
    DuelOutcome.UNDECIDED,
)
