"""A project in git with stored sessions of its code, and sides that are played."""

from __future__ import annotations

import contextlib

import msgspec

from ddp_perf.baselines.store import BaselineStore
from ddp_perf.config.loading import Overrides, load_cases
from ddp_perf.core.baseline import Session
from ddp_perf.core.verdict import Outcome
from ddp_perf.duel.open_sides import OpenSide
from ddp_perf.duel.touched import Project
from ddp_perf.settle.settling import SettleRequest, Settling, find_culprit
from ddp_perf.system.git import read_code_state
from tests.builders import (
    make_baseline,
    make_capacity,
    make_case_baseline,
    make_environment,
    make_finding,
    make_measurement,
    make_result,
    make_session,
)
from tests.repositories import Repository
from tests.unit.duel.played_sides import make_prepared

SUITE = """\
suite: {suite}
tier: cpu
workload: {module}:build
world_sizes: [1, 2]
batch_sizes: {batch_sizes}
steps: 12
warmup: 2
launches: 3
"""
PACKAGES = {"torch": "2.13.0", "numpy": "2.1.0"}
LEVEL_S = 0.010


class SettledProject:
    """A repository with the suite "quick"; ``remember`` keeps its code as a stored session's.

    ``opened`` are the labels of the references whose sides were opened, ``said`` what people read.
    """

    def __init__(self, directory, clock):
        self.clock = clock
        self.repository = Repository(directory / "project")
        self.path = self.repository.path
        self.store = BaselineStore(self.path / "baselines")
        self.older = {}  # by label: the root of the reference's side, if it is another one
        self.sides = {}  # by label: the launchers of both sides, or an error
        self.opened, self.said, self.partial = [], [], []
        self.repository.commit({"README.md": "a project\n", ".gitignore": "*.pyc\n"}, "readme")
        self.suites = []
        self.suite("quick", "model")

    def suite(self, name, module, batch_sizes="[8]"):
        text = SUITE.format(suite=name, module=module, batch_sizes=batch_sizes)
        source = "def build(context):\n    return context\n"
        files = {f"bench_configs/{name}.yaml": text, f"{module}.py": source}
        self.repository.commit(files, f"suite {name}")
        self.suites.append(self.path / "bench_configs" / f"{name}.yaml")

    @property
    def project(self):
        return Project(root=self.path, suites=tuple(self.suites), import_paths=(str(self.path),))

    def cases(self, suite="quick"):
        file = self.path / "bench_configs" / f"{suite}.yaml"
        return load_cases([file], Overrides(), [str(self.path)])

    def edit(self, text="def build(context):\n    return slow(context)\n", name="model.py"):
        self.repository.write({name: text})

    def state(self):
        return read_code_state(self.path, [self.store.directory])

    def environment(self, **changes):
        """Return that of a session of today's code."""
        state = self.state()
        fields = {"commit": state.commit[:12], "tree": state.tree, "packages": PACKAGES}
        return make_environment(**{**fields, **changes})

    def session(self, day, *, verdicts=None, keep=True, **environment) -> Session:
        """Return a session of today's code, whose patch is kept."""
        state = self.state()
        if keep and state.patch:
            self.store.keep_patch(state.tree, state.patch)
        return msgspec.structs.replace(
            make_session([LEVEL_S, LEVEL_S * 1.001], day=day),
            environment=self.environment(**environment),
            verdicts=verdicts or {},
        )

    def baseline(self, *sessions, suite="quick", **changes):
        """Return a baseline in which each case of the suite has these sessions."""
        cases = {
            case.id: make_case_baseline(case, *sessions, **changes) for case in self.cases(suite)
        }
        return make_baseline(cases)

    def result(self, outcome=Outcome.UNDECIDED, *, suite="quick", findings=None, **environment):
        """Return a session of today's code; each case has a finding of this outcome."""
        cases = self.cases(suite)
        return make_result(
            [make_measurement(case, [LEVEL_S, LEVEL_S * 1.01, LEVEL_S * 0.99]) for case in cases],
            suite=suite,
            environment=self.environment(**environment),
            findings=tuple(findings or (finding(case, outcome) for case in cases)),
        )

    def play(self, a, b, *labels):
        """Let these launchers play both sides, of the references with these labels or of any."""
        for label in labels or [None]:
            self.sides[label] = (a, b)

    @contextlib.contextmanager
    def open_sides(self, reference, project, say):
        self.opened.append(reference.label)
        found = self.sides.get(reference.label, self.sides.get(None))
        assert found is not None, "no side was to be opened"
        if isinstance(found, BaseException):
            raise found
        a, b = found
        older = self.older.get(reference.label, project.root)
        yield OpenSide(make_prepared("A", older), a), OpenSide(make_prepared("B", project.root), b)

    def request(self, **request):
        fields = {
            "project": self.project,
            "store": self.store,
            "capacity": make_capacity(),
            "budget_s": 600.0,
            "false_alarm_rate": 0.01,
            "cases": 2,
            "state": self.state(),
            "overrides": Overrides(),
        }
        return SettleRequest(**{**fields, **request})

    def settling(self, find=find_culprit, **request):
        return Settling(
            self.request(**request),
            say=self.said.append,
            clock=lambda: self.clock.now,
            sides=self.open_sides,
            find=find,
        )

    def settle(self, result, baseline, **request):
        return self.settling(**request)(result, baseline, self.partial.append)


def finding(case, outcome, **changes):
    """Return a finding of the step time that compares with a level."""
    figures = {
        Outcome.REGRESSION: {"ratio": 1.2, "interval": (1.1, 1.3), "upper": 1.3},
        Outcome.UNDECIDED: {"ratio": 1.01, "interval": (0.9, 1.14), "upper": 1.15},
        Outcome.PASS: {"ratio": 1.0, "interval": (0.99, 1.01), "upper": 1.01},
    }
    fields = {"tolerance": 0.05, "baseline": LEVEL_S, **figures.get(outcome, {})}
    return make_finding(case, outcome, **{**fields, **changes})
