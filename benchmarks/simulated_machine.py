"""A simulated machine whose sessions are judged by its baseline and then appended to it."""

from __future__ import annotations

import contextlib
import datetime
from typing import Literal, Protocol

import msgspec
import numpy as np

from benchmarks.families import LAUNCHES, Floats
from ddp_perf.baselines.save import acknowledge, merge
from ddp_perf.core.baseline import Acknowledgement
from ddp_perf.core.case import Case
from ddp_perf.core.measurement import LaunchSummary, Measurement
from ddp_perf.core.metric import METRICS, STRUCTURE, gated_metrics, is_controlled
from ddp_perf.core.verdict import Outcome
from ddp_perf.errors import BaselineError
from ddp_perf.session.gate.judge_again import judge_again
from ddp_perf.session.result import SuiteResult
from ddp_perf.session.store_baseline import append, new_sessions
from ddp_perf.stats.rule.error_rate import alpha_per_metric
from tests.builders import make_baseline, make_case, make_environment, make_launch

START = datetime.datetime(2026, 1, 1, 3, tzinfo=datetime.timezone.utc)
FALSE_ALARM_RATE, FEWEST_VERDICTS = 0.01, 20
# The metrics and their figures where nothing changed.
LEVELS = {"step_time": 0.06, "tail": 1.05, "efficiency": 1.2, "peak_memory": 1e9, "energy": 0.5}
CONTROL_S, CONTROL_NOISE = 0.002, 0.003
ENVIRONMENT = make_environment()


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """A machine whose sessions and launches differ; sds are of logs, and correlations of cases."""

    cases: int = 1
    metrics: int = 1
    days: int = 60
    tolerance: float = 0.02
    session: float = 0.005
    launch: float = 0.005
    alike: float = 0.0  # correlation of the cases of a session
    lasting: float = 0.0  # correlation of successive sessions
    law: Literal["normal", "t3", "outliers"] = (
        "normal"  # of the sessions, all of one sd but the last
    )
    busy: float = 0.0  # share of the sessions with a neighbour, who adds 3 % a launch on average
    moves: float = 0.0  # sd by which the control and the metrics that follow it move
    alternates: float = 0.0  # every second session runs on a machine that is slower by this
    restless: tuple[int, int, float] | None = None  # from day, to day, factor of the sessions' sd


class History(Protocol):
    """What happens to the code, and what its users do."""

    days: int

    def change(self, day: int) -> float:
        """Return the true slow-down of a day, as a fraction."""

    def action(self, day: int) -> str:
        """Return what is done after the session: append, accept, or acknowledge DAYS."""


class Simulation:
    """One series of sessions of a machine."""

    def __init__(self, machine: Machine, history: History, *, seed: int) -> None:
        self._machine, self._history = machine, history
        self._random = np.random.default_rng(seed)
        self._cases = _cases(machine)
        self._metrics = gated_metrics(self._cases[0])
        self._launches = tuple(make_launch(self._cases[0], i) for i in range(LAUNCHES))
        self._moods: Floats = np.zeros((machine.cases, len(self._metrics)))
        self._baseline = make_baseline({})

    def run(self) -> list[list[Outcome]]:
        """Return the outcomes of all verdicts of each day; an expected regression is a PASS."""
        days = []
        for day in range(self._history.days):
            measured = self._measured(day)
            result = judge_again(measured, self._baseline, baseline_path=measured.baseline_path)
            days.append(
                [
                    Outcome.PASS if found.is_expected else found.verdict.outcome
                    for found in result.findings
                    if found.metric != STRUCTURE
                ]
            )
            self._store(result, self._history.action(day), day)
        return days

    def _store(self, result: SuiteResult, action: str, day: int) -> None:
        if action == "accept":
            new = new_sessions(result)
            self._baseline = merge(self._baseline, new, mode="accept", reason="simulated")
            return
        self._baseline, _ = append(result, self._baseline)
        what, _, days = action.partition(" ")
        if what == "acknowledge":
            given = Acknowledgement(
                case=self._cases[0].id,
                metric=self._metrics[0],
                reason="simulated",
                until=_date(day + int(days))[:10],
                date=result.date,
            )
            with contextlib.suppress(BaselineError):  # nothing is red, so there is nothing known
                self._baseline = acknowledge(self._baseline, given)

    def _measured(self, day: int) -> SuiteResult:
        logs, control = self._logs(day)
        verdicts = max(FEWEST_VERDICTS, len(self._cases) * len(self._metrics))
        return SuiteResult(
            suite="months",
            tier="cpu",
            date=_date(day),
            environment=ENVIRONMENT,
            baseline_path="baselines/months.json",
            alpha=alpha_per_metric(FALSE_ALARM_RATE, verdicts),
            measurements={
                case.id: Measurement(case=case, launches=self._launches, failures=())
                for case in self._cases
            },
            summaries={
                case.id: tuple(
                    self._summary(number, logs[i, :, number], control[number])
                    for number in range(LAUNCHES)
                )
                for i, case in enumerate(self._cases)
            },
        )

    def _summary(self, number: int, logs: Floats, control: float) -> LaunchSummary:
        figures = {
            metric: LEVELS[metric] * float(factor)
            for metric, factor in zip(self._metrics, np.exp(logs), strict=True)
        }
        return LaunchSummary(
            round=number,
            values=figures,
            control_s=CONTROL_S * float(np.exp(control)),
            typical_step_s=0.06,
            mean_step_s=0.06,
            p95_step_s=0.07,
            throughput=1000.0,
            overhead_s=1.0,
        )

    def _logs(self, day: int) -> tuple[Floats, Floats]:
        """Draw the logs of cases × metrics × launches, and those of the control's launches."""
        machine, random = self._machine, self._random
        shape = self._moods.shape
        common = np.sqrt(machine.alike) * self._draw((1, shape[1]))
        fresh = np.sqrt(1 - machine.alike) * self._draw(shape) + common
        kept = machine.lasting if day else 0.0
        self._moods = kept * self._moods + np.sqrt(1 - kept**2) * fresh
        levels = machine.session * self._moods
        if machine.restless is not None and machine.restless[0] <= day < machine.restless[1]:
            levels = levels * machine.restless[2]
        moves = machine.moves * random.normal()
        control = moves + random.normal(0, CONTROL_NOISE, LAUNCHES)
        follows = [[is_controlled(metric)] for metric in self._metrics]
        logs = (
            levels[..., None]
            + moves * np.array(follows)
            + random.normal(0, machine.launch, (*shape, LAUNCHES))
        )
        if random.random() < machine.busy:
            logs = logs + random.exponential(0.03, (*shape, LAUNCHES))
        slower = np.log1p(self._history.change(day)) + machine.alternates * (day % 2)
        return logs + slower, control

    def _draw(self, shape: tuple[int, ...]) -> Floats:
        if self._machine.law == "t3":
            return self._random.standard_t(3, shape) / np.sqrt(3)
        drawn = self._random.normal(size=shape)
        if self._machine.law == "outliers":
            drawn = drawn * np.where(self._random.random(shape) < 0.05, 8.0, 1.0)
        return drawn


def _cases(machine: Machine) -> list[Case]:
    case, gated = make_case(), list(LEVELS)[: machine.metrics]
    given = {metric.name: machine.tolerance if metric.name in gated else None for metric in METRICS}
    tolerances = msgspec.structs.replace(case.tolerances, **given)
    return [
        msgspec.structs.replace(case, id=f"case-{i}", tolerances=tolerances, single="one rank")
        for i in range(machine.cases)
    ]


def _date(day: int) -> str:
    return (START + datetime.timedelta(days=day)).isoformat()
