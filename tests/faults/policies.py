"""Ends of an experiment by signals, at any moment: which of its launches are lost, and is its
verdict another one?

Each policy is played in a process of its own: its launches are played by their arm and number, and
take 2 ms. Then the same policy goes on to its end. A signal between the end of a launch and its
line in the log loses that launch, which is launched again.
"""

from __future__ import annotations

import contextlib
import functools
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from ddp_perf.cli.measuring import AGAIN, endable
from ddp_perf.core.launch import LaunchRequest, LaunchResult
from ddp_perf.duel.bisect.find import run_bisect
from ddp_perf.duel.bisect.opening import CommitTurn, CommitTurns
from ddp_perf.duel.bisect.search import Question, search_state
from ddp_perf.duel.environments.run import EnvironmentRun, find_differences
from ddp_perf.duel.sweep.halving import sweep_result
from ddp_perf.selftest.trials import Slowing, finished, power_curve
from ddp_perf.session.measure.experiment import Experiment, History, open_log
from ddp_perf.session.measure.rounds import SessionCode, no_packages
from ddp_perf.system.files import replace_file
from ddp_perf.system.git import CodeState
from tests.builders import (
    CPU_S,
    RUNTIME,
    FakeLauncher,
    NotedProgress,
    make_case,
    make_cases,
    make_environment,
    make_launch,
)
from tests.faults.matrix import Tried
from tests.suites import make_bench, measure_suite
from tests.unit.duel.bisect.test_run import make_line
from tests.unit.duel.environments.test_probes import Hybrids, make_side
from tests.unit.duel.played_sides import PlayedSide, play
from tests.unit.duel.sweep.sweeps import PlayedMachine, make_run
from tests.unit.selftest.selftest_machine import make_request

SIGNALS = {
    signal.SIGINT: "Ctrl-C in an experiment",
    signal.SIGTERM: "SIGTERM in an experiment",
    signal.SIGKILL: "SIGKILL of an experiment",
}
LAUNCH_S = 0.002


class Play:
    """The launches of a process: each takes a second of a played clock, and leaves a witness."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.now = directory, 0.0
        self._witness = os.open(directory / "witness", os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def step_s(self, name: object, slower: float = 1.0) -> float:
        """Return 10 ms × ``slower``, give or take 1 % by the name."""
        return 0.01 * slower * random.Random(str(name)).lognormvariate(0.0, 0.01)

    def launched(self, request: LaunchRequest, step_s: float) -> LaunchResult:
        self.now += 1.0
        time.sleep(LAUNCH_S)
        cpu_s = (step_s / 0.01 * CPU_S,) * request.case.schedule.measured
        result = make_launch(request.case, request.round, step_s=step_s, cpu_s=cpu_s)
        os.write(self._witness, b".")
        return result


class Side(PlayedSide):
    """A side of a duel whose launches are known by their case and number."""

    def __init__(self, played: Play, name: str, slower: float) -> None:
        super().__init__(played, 1)
        self._played, self._side, self._cost = played, name, slower

    def launch(self, request: LaunchRequest) -> LaunchResult:
        name = (self._side, request.case.id, request.round)
        return self._played.launched(request, self._played.step_s(name, self._cost))


def play_duel(played: Play) -> object:
    cases = [make_case(id="one"), make_case(id="two")]
    with contextlib.closing(open_log(played.directory, {"q": "duel"}, {})) as log:
        sides = Side(played, "A", 1.0), Side(played, "B", 1.03)
        duel = play(played, *sides, cases, tolerance=0.02, log=log, counts=False)
        return [(case.metrics, case.outcome) for case in duel.cases]


def play_bisect(played: Play) -> object:
    line, question = make_line(16), Question(length=16)

    @contextlib.contextmanager
    def opened(commit: Any) -> Iterator[CommitTurn]:
        place = line.commits.index(commit)

        def answer(request: LaunchRequest) -> LaunchResult:
            step_s = played.step_s((place, request.round), 1.1 if place >= 11 else 1.0)
            return played.launched(request, step_s)

        yield CommitTurn(FakeLauncher(answer), make_case(), ())

    with (
        contextlib.closing(open_log(played.directory, {"q": "bisect"}, {})) as log,
        contextlib.closing(CommitTurns(line, opened)) as turns,
    ):
        run_bisect(question, log, turns, until=1e9, on_launch=lambda launch: None)
        now = search_state(question, log.entries, ended=True)
        return now.suspects


def play_environments(played: Play) -> object:
    variables = {f"V{number}": "old" for number in range(6)}
    a = make_side(played.directory, variables=variables)
    b = make_side(played.directory, variables=dict.fromkeys(variables, "new"))

    class Known(Hybrids):
        def open(self, side: Any) -> FakeLauncher:
            new = sorted(name for name, value in side.variables.items() if value == "new")

            def answer(request: LaunchRequest) -> LaunchResult:
                cost = 1.2 if "V3" in new else 1.0
                return played.launched(request, played.step_s((new, request.round), cost))

            return FakeLauncher(answer)

    differences = find_differences(a, b)
    run = EnvironmentRun(a, b, make_case(), differences, logs=played.directory, machine="cpu")
    with contextlib.closing(run.log):
        run.run(Known(lambda names: 1.0).open, until=1e9, on_launch=lambda count: None)
        search = run.result().search
        return [culprit.factors for culprit in search.culprits], search.complete


def play_sweep(played: Play) -> object:
    machine = PlayedMachine()
    costs = {1: 1.3, 2: 1.1, 5: 0.9, 10: 0.97, 25: 1.0}

    def answer(request: LaunchRequest) -> LaunchResult:
        size = request.case.training.ddp.bucket_cap_mb
        return played.launched(request, played.step_s((size, request.round), costs[int(size)]))

    machine.answer = answer
    with contextlib.closing(open_log(played.directory, {"q": "sweep"}, {})) as log:
        run = make_run(machine, "bucket_cap_mb=1,2,5,10", budget_s=120.0, log=log, seed=1)
        run.run(on_launch=lambda count: None)
        result = sweep_result(run, began="", wall_s=0.0, runtime=RUNTIME)
        return result.best, result.verdict is not None and result.verdict.outcome


def play_selftest(played: Play) -> object:
    request = make_request(launches=3)

    def answer(asked: LaunchRequest) -> LaunchResult:
        slower = 1 + sum(one.amount for one in asked.injections)
        return played.launched(asked, played.step_s(asked.round, slower))

    class Ending(Slowing):
        """A self-test is endless: this one ends after 150 launches."""

        def next(self, history: History) -> Any:
            return None if len(finished(history)) >= 150 else super().next(history)

    with contextlib.closing(open_log(played.directory, {"q": "selftest"}, {})) as log:
        policy = Ending(request, FakeLauncher(answer), earlier=log.earlier)
        Experiment(log).run(policy)
        curve = power_curve(request, log.entries, make_environment())
        return curve.conclusion, [point.outcomes for point in curve.points]


def play_session(played: Play) -> object:
    cases = tuple(make_cases(launches=10))

    def answer(request: LaunchRequest) -> LaunchResult:
        return played.launched(request, played.step_s((request.case.id, request.round)))

    code = SessionCode(
        state=CodeState(commit="0" * 40, tree="1" * 40), problem=None, packages=no_packages
    )
    progress = NotedProgress()
    bench = make_bench(played.directory, FakeLauncher(answer), code=code, progress=progress)

    def keep(result: Any) -> None:
        kept = sum(len(one.launches) for one in result.measurements.values())
        replace_file(played.directory / "kept", str(kept).encode())

    result = measure_suite(bench, cases=cases, on_partial=keep)
    return [(one.case_id, one.metric, one.verdict.outcome) for one in result.findings]


POLICIES: dict[str, Callable[[Play], object]] = {
    "a suite": play_session,
    "a duel": play_duel,
    "a bisect": play_bisect,
    "a search of environments": play_environments,
    "a sweep": play_sweep,
    "a self-test": play_selftest,
}


class Child:
    """A policy that is played in another process."""

    def __init__(self, policy: str, directory: Path) -> None:
        self._verdict, self._witness = directory / "verdict", directory / "witness"
        self.output = directory / "output"
        self.output.touch()
        self._verdict.unlink(missing_ok=True)
        self._pid = os.fork()
        if self._pid == 0:
            try:
                sys.stderr = self.output.open("a", encoding="utf-8")
                # Also if a shell ignores it.
                signal.signal(signal.SIGINT, signal.default_int_handler)
                played = Play(directory)
                with endable(AGAIN), mock.patch("time.monotonic", side_effect=lambda: played.now):
                    replace_file(self._verdict, repr(POLICIES[policy](played)).encode())
                os._exit(0)
            finally:  # a signal before the block must not unwind what is forked
                os._exit(1)

    @property
    def launches(self) -> int:
        """The number of launches that are finished, in this process and in those before."""
        return self._witness.stat().st_size if self._witness.exists() else 0

    def end(self, number: signal.Signals, *, launches: int, then_s: float) -> None:
        """Send a signal so long after so many launches, if it has not ended before."""
        while self.launches < launches:
            if os.waitpid(self._pid, os.WNOHANG)[0]:
                return
            time.sleep(LAUNCH_S / 4)
        time.sleep(then_s)
        os.kill(self._pid, number)
        os.waitpid(self._pid, 0)

    def verdict(self) -> str | None:
        """Return what it concluded, once it has ended; None: it was ended before."""
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self._pid, 0)
        return self._verdict.read_text() if self._verdict.exists() else None


def logged(directory: Path) -> int:
    """Return how many launches a log has, or the last result of a session without one."""
    logs = [*directory.rglob("*.jsonl")]
    lines = [line for log in logs for line in log.read_bytes().split(b"\n")[1:-1]]
    kept = directory / "kept"
    return max(len(lines), int(kept.read_text()) if kept.exists() else 0)


@functools.cache
def _whole(policy: str) -> tuple[str, int]:
    """Return the verdict of a policy that nobody ends, and how many launches it takes."""
    with tempfile.TemporaryDirectory() as name:
        child = Child(policy, Path(name))
        verdict = child.verdict()
        assert verdict is not None  # nobody ended it
        return verdict, child.launches


def try_policy(policy: str, number: signal.Signals, seed: int) -> Tried:
    """End a policy once, and let it go on."""
    draw, (whole, launches) = random.Random(seed), _whole(policy)
    with tempfile.TemporaryDirectory() as name:
        directory, child = Path(name), Child(policy, Path(name))
        first = draw.randrange(1, launches)  # before, nothing says how it ends
        child.end(number, launches=first, then_s=draw.uniform(0, 2 * LAUNCH_S))
        ended = child.verdict() is None
        missing = child.launches - logged(directory) if ended else 0
        said = child.output.read_text(encoding="utf-8").strip()
        again = Child(policy, directory)
        verdict = again.verdict()
    return Tried(
        fault=SIGNALS[number],
        where=policy,
        seen=said,
        kept="its finished launches",
        survived=verdict == whole and (AGAIN in said) == (ended and number is not signal.SIGKILL),
        lost=max(missing - 1, 0),  # one may be in flight
    )
