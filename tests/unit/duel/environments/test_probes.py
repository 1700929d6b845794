"""A probe is a duel of A against a hybrid, here with played launchers."""

from __future__ import annotations

import contextlib
import math
import sys
from pathlib import Path

import numpy as np
import pytest

from ddp_perf.duel.environments.factors import Factor
from ddp_perf.duel.environments.probes import ProbeEffect, Probes, Probing, find_culprits
from ddp_perf.duel.environments.run import EnvironmentRun, find_differences
from ddp_perf.duel.values import PreparedSide, Side
from ddp_perf.errors import LaunchError, SideError
from ddp_perf.session.measure.experiment import Experiment
from ddp_perf.stats.pairs import PairedPlan
from ddp_perf.system.ledger import Entries
from tests.builders import FakeLauncher, make_case, make_failure, make_launch
from tests.unit.duel.environments.environments import install

PACKAGES = tuple(
    Factor(name=name, label=f"{name} 1 → 2", links=((name, f"/b/{name}"),)) for name in "xyz"
)
VARIABLE = Factor(name="env:MODE", label="MODE: old → new", variable="MODE", value="new")


def make_side(root: Path, **changes) -> PreparedSide:
    fields = {
        "side": Side(name="A", spec="python:/a", kind="python", label="a"),
        "root": root,
        "interpreter": sys.executable,
        "environ": {"MODE": "old", "PYTHONPATH": "/mine"},
        "package": root,
        "variables": {"MODE": "old"},
    }
    return PreparedSide(**{**fields, **changes})


class Hybrids:
    """Launchers whose step times depend on what a hybrid has of B."""

    def __init__(self, cost, *, noise=0.01):
        self.cost, self.sides, self.closed, self.running = cost, [], 0, set()
        self._noise, self._random = noise, np.random.default_rng(1)

    def open(self, side):
        self.sides.append(side)
        hybrids, names = self, self.moved(side)

        class Launcher(FakeLauncher):
            def runtime(self, case=None):
                if hybrids.cost(names) == "no torch":
                    raise LaunchError("the forkserver did not start: no torch")
                return super().runtime(case)

            def launch(self, request):
                self.runtime()
                hybrids.running.add(self)
                return super().launch(request)

            def close(self):
                hybrids.closed += 1
                hybrids.running.discard(self)

        def answer(request):
            cost = self.cost(names)
            if cost == "fails":
                return make_failure(request.case, request.round)
            log = self._random.normal(0, self._noise)
            step_s = 0.01 * cost * math.exp(log)
            cpu_s = (step_s,) * request.case.schedule.measured
            return make_launch(request.case, request.round, step_s=step_s, cpu_s=cpu_s)

        return Launcher(answer)

    @staticmethod
    def moved(side):
        overlay = Path(side.environ["PYTHONPATH"].split(":")[0])
        names = {path.name for path in overlay.iterdir()} - {"ddp_perf"}
        return names | ({"MODE"} if side.environ.get("MODE") == "new" else set())


class Searching:
    """A search of which any probe can be asked, with played launchers and a log in memory."""

    def __init__(self, root, cost, factors):
        self.hybrids, self.factors = Hybrids(cost), factors
        self.plan = PairedPlan(alpha=0.01, tolerance=0.05, looks=(6, 9, 20))
        self.log = Entries()
        self._root = root

    def run(self, *, until=1.0):
        probing = Probing(
            make_side(self._root),
            make_case(env={"MODE": "old", "OTHER": "1"}),
            self.factors,
            plan=self.plan,
            open_launcher=self.hybrids.open,
            directory=self._root / "hybrids",
            earlier=0,
        )
        with contextlib.closing(probing):
            experiment = Experiment(self.log, launches_a_server=6, may_not_start=True)
            experiment.run(probing, until=until)
        return find_culprits(self.factors, self.probes.of)

    @property
    def probes(self):
        return Probes(self.log.entries, self.factors, self.plan, earlier=0)


@pytest.fixture
def searching(tmp_path, monkeypatch):
    monkeypatch.setattr("time.monotonic", lambda: 0.0)
    return lambda cost, factors=(*PACKAGES, VARIABLE): Searching(tmp_path, cost, factors)


def test_a_hybrid_is_a_with_links_and_variables_of_b(searching):
    one = searching(lambda names: 1.2 if names == {"x", "MODE"} else 1.0, (PACKAGES[0], VARIABLE))

    found = one.run().probes[0]

    assert found.effect is ProbeEffect.SLOWER
    assert found.verdict.ratio == pytest.approx(1.2, rel=0.02)
    assert found.moved == ("x", "env:MODE")
    base, hybrid = one.hybrids.sides[:2]
    assert base.variables == {"MODE": "old"}
    assert hybrid.variables == {"MODE": "new"}
    overlay = Path(hybrid.environ["PYTHONPATH"].split(":")[0])
    assert hybrid.environ["PYTHONPATH"].endswith(":/mine")
    assert (overlay / "x").readlink() == Path("/b/x")
    assert hybrid.package == overlay  # so that no other package is found before B's


def test_equal_environments_have_no_effect(searching):
    (probe,) = searching(lambda names: 1.0).run().probes

    assert probe.effect is ProbeEffect.NONE


@pytest.mark.parametrize("how", ["fails", "no torch"])
def test_a_hybrid_that_does_not_run_is_unresolved(searching, how):
    found = searching(lambda names: how if "y" in names else 1.0).run().probes[0]

    assert found.effect is ProbeEffect.UNRESOLVED
    assert found.failure is not None
    assert found.verdict is None


def test_an_environment_a_that_fails_is_refused(searching):
    with pytest.raises(LaunchError, match=r"A: .*exited with code 3"):
        searching(lambda names: "fails" if not names else 1.0).run()


def test_what_is_known_to_be_slow_must_not_fail_beside_the_rest(searching):
    launched = []

    def cost(names):
        if names == {"x"}:
            launched.append(names)
        late = names == {"x"} and len(launched) > 16  # asked twice a launch: six pairs have decided
        return "fails" if late else 1.3 if "x" in names else 1.0

    with pytest.raises(LaunchError, match=r"A: .*exited with code 3"):
        searching(cost).run()


def test_a_budget_that_is_over_makes_no_probe(searching):
    one = searching(lambda names: 1.0)

    assert not one.run(until=-1.0).complete
    assert one.log.entries == []
    assert not one.hybrids.running


def test_the_search_finds_what_acts_together_and_closes_every_launcher(searching):
    one = searching(lambda names: 1.3 if {"x", "MODE"} <= names else 1.0)

    search = one.run()

    assert [culprit.factors for culprit in search.culprits] == [("x 1 → 2", "MODE: old → new")]
    assert search.cleared
    assert not one.hybrids.running
    assert one.hybrids.closed >= len(one.hybrids.sides)


def test_a_number_of_threads_is_judged_by_wall_time(searching):
    threads = Factor(name="env:OMP_NUM_THREADS", label="", variable="OMP_NUM_THREADS", value="2")
    one = searching(lambda names: 1.0, (threads,))

    one.run()

    assert one.probes.metric == "step_time"
    assert one.probes.calibration == []


@pytest.mark.slow
def test_a_run_keeps_its_probes_for_the_next_one(tmp_path, monkeypatch):
    monkeypatch.setattr("time.monotonic", lambda: 0.0)
    a = make_side(tmp_path)
    b = make_side(tmp_path, environ={"MODE": "new"}, variables={"MODE": "new"})
    differences = find_differences(a, b)
    hybrids = Hybrids(lambda names: 1.3 if "MODE" in names else 1.0)
    results = []
    for until in (1.0, 0.0):
        run = EnvironmentRun(
            a, b, make_case(), differences, logs=tmp_path / "logs", machine="cpu-some"
        )
        with contextlib.closing(run.log):
            run.run(hybrids.open, until=until, on_launch=lambda count: None)
        results.append(run.result())

    assert results[0] == results[1]
    assert results[0].search.culprits[0].factors == ("MODE: old → new",)
    assert results[0].search.complete


@pytest.mark.slow
def test_all_probes_of_one_culprit_share_five_per_cent(tmp_path):
    sides = make_side(tmp_path), make_side(tmp_path, variables={"MODE": "new"})
    run = EnvironmentRun(
        *sides, make_case(), find_differences(*sides), logs=tmp_path / "logs", machine="cpu"
    )
    run.log.close()

    assert run.plan.alpha * run.expected == pytest.approx(0.05)


def test_sides_without_a_difference_are_refused(tmp_path):
    with pytest.raises(SideError, match="have the same packages and variables"):
        find_differences(make_side(tmp_path), make_side(tmp_path))


@pytest.mark.slow
def test_probes_of_a_tree_or_an_environment_that_changed_are_made_anew(tmp_path, monkeypatch):
    monkeypatch.setattr("time.monotonic", lambda: 0.0)
    (tmp_path / "project").mkdir()
    workload, package = tmp_path / "project" / "mine.py", tmp_path / "site" / "x" / "__init__.py"
    workload.write_text("A = 1\n", "utf-8")
    install(tmp_path / "site", "x", "1.0", "A = 1\n")
    environ = {"MODE": "old", "PYTHONPATH": str(tmp_path / "site")}
    a = make_side(tmp_path / "project", environ=environ)
    b = make_side(tmp_path / "project", environ=environ, variables={"MODE": "new"})
    differences = find_differences(a, b)

    def opened():
        run = EnvironmentRun(a, b, make_case(), differences, logs=tmp_path / "logs", machine="cpu")
        with contextlib.closing(run.log):
            run.run(Hybrids(lambda names: 1.0).open, until=1.0, on_launch=lambda count: None)
        return run.log

    first = opened()
    assert (opened().path, opened().changed) == (first.path, [])
    for changed, what in ((workload, "sources of A"), (package, "packages of A")):
        changed.write_text("A = 22\n", "utf-8")
        again = opened()
        assert again.earlier == 0
        assert any(what in text for text in again.changed)
