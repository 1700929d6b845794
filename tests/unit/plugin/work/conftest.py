"""A project whose steps a fake counter counts: the work tests as a user runs them."""

from __future__ import annotations

import shutil

import pytest

from ddp_perf.plugin import session as plugin_session
from tests.counters import FakeCounter
from tests.projects import REPOSITORY
from tests.works import make_operation, make_step_work


class Counting:
    """A project of two cases; their steps have ``clones`` operations, and so many FLOPs in all."""

    def __init__(self, project):
        self.project = project
        self.path = project.path
        self.counter = FakeCounter(lambda request: self.answer(request))
        self.clones = 2
        self.flops = 5

    def answer(self, request):
        return make_step_work(operations=(make_operation(count=self.clones, flops=self.flops),))

    def run(self, *arguments):
        return self.project.run("-m", "work", *arguments)

    def store(self):
        self.run("--save-baseline").assert_outcomes(skipped=2)


@pytest.fixture
def counting(project, monkeypatch):
    for name in ("GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY"):
        monkeypatch.delenv(name, raising=False)
    shutil.copy(REPOSITORY / "tests" / "work" / "test_work.py", project.path / "tests")
    counting = Counting(project)
    monkeypatch.setattr(plugin_session, "ServerLauncher", lambda: counting.counter)
    return counting
