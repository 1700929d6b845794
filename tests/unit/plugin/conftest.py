"""A project with a fake launcher: the plugin as a user runs it, on a machine of two cores."""

from __future__ import annotations

import contextlib
import datetime

import msgspec
import pytest

import tests.late_imports  # noqa: F401
from ddp_perf.baselines.store import BaselineStore
from ddp_perf.config.loading import Overrides, load_cases
from ddp_perf.core.launch import LaunchRequest
from ddp_perf.duel import touched
from ddp_perf.plugin import session as plugin_session
from ddp_perf.session.measure import machine
from ddp_perf.session.result import read_results
from tests.builders import (
    FakeLauncher,
    make_baseline,
    make_capacity,
    make_case_baseline,
    make_environment,
    make_launch,
    make_session,
)
from tests.packages_once import versions_once
from tests.projects import TINY, make_project

JITTER = (1.0, 1.004, 0.996)


class Launcher(FakeLauncher):
    """A fake launcher that records every request, and whether it was closed."""

    def __init__(self, answer):
        super().__init__(answer)
        self.requests: list[LaunchRequest] = []
        self.closed = False

    def launch(self, request):
        self.requests.append(request)
        return super().launch(request)

    def close(self):
        self.closed = True


class Project:
    """One suite of one and two ranks; ``answer(request)`` is the result of each launch."""

    def __init__(self, pytester):
        self.path = pytester.path
        self.capacity = make_capacity(cores=2)
        self.launchers: list[Launcher] = []
        self.answer = self.steps_of(0.010, 0.012)
        self._pytester = pytester
        self.suite("tiny", TINY.replace("launches: 2", "launches: 3"))

    def suite(self, name, text):
        (self.path / "bench_configs" / f"{name}.yaml").write_text(text)

    def cases(self, name="tiny"):
        return load_cases([self.path / "bench_configs" / f"{name}.yaml"], Overrides(), ())

    def run(self, *arguments, **options):
        arguments = ("-p", "no:cacheprovider", "-m", "cpu", *arguments)
        return self._pytester.runpytest(*arguments, **options)

    def results(self, *arguments):
        """Run a session and return its results by suite."""
        self.run("--ddp-json=results.json", *arguments)
        written = read_results(self.path / "results.json")
        return {suite.suite: suite for suite in written.suites}

    def requests(self):
        """Return the requests of the newest session."""
        return self.launchers[-1].requests

    @staticmethod
    def steps_of(one_s, two_s):
        """Return an answer: launches that differ a little around these step times."""

        def answer(request):
            step_s = one_s if request.case.world_size == 1 else two_s
            step_s *= JITTER[request.round % len(JITTER)]
            return make_launch(request.case, request.round, step_s=step_s)

        return answer

    def store(self, *, sessions=6, spread=0.002, **baseline):
        """Store sessions in which one rank takes 10 ms per step, and two take 12 ms."""
        one, two = self.cases()
        key = self.capacity.accelerator_key("cpu")
        environment = make_environment(accelerator_key=key)
        stored = {}
        for case, step_s, figures in ((one, 0.010, {}), (two, 0.012, {"efficiency": 1.2})):
            rows = [
                make_session(
                    [step_s * factor * (1 + spread * (-1) ** day) for factor in JITTER],
                    day=day,
                    **figures,
                )
                for day in range(1, sessions + 1)
            ]
            rows = [msgspec.structs.replace(row, environment=environment) for row in rows]
            stored[case.id] = make_case_baseline(case, *rows)
        written = make_baseline(stored, accelerator=key, **baseline)
        store = BaselineStore(self.path / "baselines")
        return store.update(key, lambda _: written)

    def stored(self):
        store = BaselineStore(self.path / "baselines")
        return store.load(self.capacity.accelerator_key("cpu")).cases

    def repeat_stored(self, times, *, tier="cpu", ended=0):
        """Repeat each stored session as if it had been measured on so many days, up to its own, or
        until ``ended`` days before.
        """
        store = BaselineStore(self.path / "baselines")

        def repeated(baseline):
            cases = {
                case_id: msgspec.structs.replace(
                    case,
                    sessions=tuple(
                        _days_earlier(session, days)
                        for days in reversed(range(ended, ended + times))
                        for session in case.sessions
                    ),
                    log=tuple(_days_earlier(entry, ended) for entry in case.log),
                )
                for case_id, case in baseline.cases.items()
            }
            return msgspec.structs.replace(baseline, cases=cases)

        store.update(self.capacity.accelerator_key(tier), repeated)


def _days_earlier(stored, days):
    date = datetime.datetime.fromisoformat(stored.date) - datetime.timedelta(days=days)
    return msgspec.structs.replace(stored, date=date.isoformat())


@pytest.fixture
def project(pytester, monkeypatch):
    project = Project(make_project(pytester, monkeypatch))

    def launcher():
        project.launchers.append(Launcher(lambda request: project.answer(request)))
        return project.launchers[-1]

    monkeypatch.setattr(machine, "ServerLauncher", launcher)
    monkeypatch.setattr(touched, "versions_behind", versions_once)
    monkeypatch.setattr(plugin_session, "find_capacity", lambda: project.capacity)
    monkeypatch.setattr(machine, "machine_lease", lambda **_: contextlib.nullcontext())
    return project
