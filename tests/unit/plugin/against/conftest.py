"""A project whose performance tests a played duel judges."""

from __future__ import annotations

import msgspec
import pytest

from ddp_perf.core.verdict import DuelOutcome
from ddp_perf.plugin.against import session
from tests.duels import make_case_duel, make_conditions, make_duel, make_metric_duel

OF_CPU = ("step_time", "tail", "efficiency", "cpu_time", "peak_memory")


class Against:
    """A project of two cases; ``outcomes`` has those of metrics, by the case's number of ranks."""

    def __init__(self, project):
        self.project = project
        self.path = project.path
        self.asked = []  # the cases of each run
        self.outcomes = {}  # by ranks and metric; others are EQUIVALENT
        self.changes = {}  # of the verdicts, by ranks and metric
        self.cases = {}  # changes of the CaseDuel, by ranks
        self.whole = {}  # changes of the Duel
        self.play = self.duel

    def run(self, *arguments, side="env:OMP_NUM_THREADS=1"):
        return self.project.run(f"--ddp-against={side}", *arguments)

    def duel(self, a, b, cases, on_update):
        self.asked.append([case.id for case in cases])
        ended = [self._ended(case) for case in cases]
        conditions = {"A": make_conditions(), "B": make_conditions()}
        duel = make_duel(*ended, a=a, b=b, conditions=conditions)
        return msgspec.structs.replace(duel, **self.whole)

    def _ended(self, case):
        metrics = []
        for metric in OF_CPU:
            key = case.world_size, metric
            outcome = self.outcomes.get(key, DuelOutcome.EQUIVALENT)
            changes = self.changes.get(key, {})
            metrics.append(make_metric_duel(case, outcome, metric=metric, **changes))
        changes = {"metrics": tuple(metrics), **self.cases.get(case.world_size, {})}
        return make_case_duel(DuelOutcome.EQUIVALENT, case, **changes)


@pytest.fixture
def against(project, monkeypatch):
    for name in ("GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY"):
        monkeypatch.delenv(name, raising=False)
    against = Against(project)
    monkeypatch.setattr(
        session,
        "run_against",
        lambda setup, on_sigterm, sides, cases, on_update: against.play(
            sides[0], sides[1], cases, on_update
        ),
    )
    return against
