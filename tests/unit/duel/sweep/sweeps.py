"""A simulated machine for sweeps, whose launches take two seconds of a fake clock each."""

from __future__ import annotations

import math

import numpy as np

from ddp_perf.config.cases import Variant, cases_of
from ddp_perf.duel.sweep.halving import SweepRun
from ddp_perf.duel.sweep.settings import parse_knobs, plan_settings
from ddp_perf.system.ledger import Entries
from tests.builders import FakeLauncher, make_capacity, make_failure, make_launch, make_suite

STEP_S, LAUNCH_S = 0.02, 2.0


class PlayedMachine:
    """Step times by the case, with noise of a launch, a drift that all share, and a clock."""

    def __init__(self, cost=lambda case: 1.0, *, noise=0.01, drift=0.0, seed=1, broken=None):
        self.cost, self.noise, self.drift = cost, noise, drift
        self.broken = broken or (lambda case: False)
        self.now = 0.0
        self.requests = []
        self.open = set()  # numbers of threads of the servers that run
        self._random = np.random.default_rng(seed)

    def clock(self):
        return self.now

    def launcher(self):
        machine = self

        class Launcher(FakeLauncher):
            def launch(self, request):
                machine.open.add(request.case.env.get("OMP_NUM_THREADS"))
                return super().launch(request)

            def close(self):
                machine.open.clear()

        return Launcher(lambda request: self.answer(request))

    def answer(self, request):
        self.now += LAUNCH_S
        self.requests.append(request)
        if self.broken(request.case):
            return make_failure(request.case, request.round)
        log = self._random.normal(0, self.noise) + self.drift * math.sin(self.now / 300)
        step_s = STEP_S * self.cost(request.case) * math.exp(log)
        return make_launch(request.case, request.round, step_s=step_s)


def make_settings(*words, suite=None):
    suite = suite or make_suite()
    base = cases_of(Variant(suite=suite))[1]
    obstacle = make_capacity(cores=64).obstacle
    return plan_settings(suite, base, parse_knobs(words, None, suite), obstacle)


def make_run(machine, *words, budget_s=600.0, suite=None, log=None, seed=None):
    """Begin a sweep on a played machine, whose clock must be that of ``time.monotonic``."""
    settings = make_settings(*words, suite=suite)
    log = Entries() if log is None else log
    return SweepRun(settings, machine.launcher(), log, budget_s=budget_s, seed=seed)


def run_sweep(machine, *words, on_launch=lambda count: None, **options):
    run = make_run(machine, *words, **options)
    return run, run.run(on_launch=on_launch)
