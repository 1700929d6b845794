"""Simulate months of a gate's life: measure, judge, store, and again the next day.

    python tests/quality/months.py [--series N] [--seed N] [--only TEXT]

Every session goes the way of ``ddp-perf judge --append``: it is judged by the stored baseline, and
then appended to it. Only the figures of the launches are drawn.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import datetime
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
os.environ.setdefault("OMP_NUM_THREADS", "1")  # one process a core is all there is to use

import msgspec
import numpy as np
from scipy import stats

from ddp_perf.baselines.save import merge
from ddp_perf.core.baseline import Acknowledgement, Baseline
from ddp_perf.core.case import Case
from ddp_perf.core.measurement import LaunchSummary, Measurement
from ddp_perf.core.metric import gated_metrics
from ddp_perf.core.verdict import Outcome
from ddp_perf.session.gate.judge_again import judge_again
from ddp_perf.session.result import SuiteResult
from ddp_perf.session.store_baseline import append, new_sessions
from tests.builders import make_baseline, make_case, make_environment, make_launch
from tests.quality.families import Floats

LAUNCHES = 5
START = datetime.datetime(2026, 1, 1, 3, tzinfo=datetime.timezone.utc)
GOOD = (Outcome.PASS, Outcome.IMPROVEMENT)
LEVELS = {"step_time": 0.06, "tail": 1.05, "efficiency": 1.2, "peak_memory": 1e9, "energy": 0.5}
ENVIRONMENT = make_environment()


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """A machine whose sessions and launches differ; sds are on the log scale."""

    cases: int = 1
    metrics: int = 1
    tolerance: float = 0.02
    session: float = 0.005
    launch: float = 0.005
    shared: float = 0.0  # correlation of the cases of a session
    persistence: float = 0.0  # correlation of successive sessions
    law: str = "normal"  # of the sessions; "t3" is Student's t with 3 df and the same sd
    busy: float = 0.0  # share of sessions in which launches are slower, by 3 % on average
    control: float = 0.0  # of the sessions' variance, what the control shows
    restless: str = ""


class Life(msgspec.Struct, frozen=True, kw_only=True):
    """A scenario: the true change by day, and what a user does."""

    name: str
    days: int
    change: Callable[[int], float] = lambda day: 0.0  # true slow-down by day, as a fraction
    actions: dict[int, str] = {}  # by day, after its session: "accept", "acknowledge"
    since: int  # the first day that is counted
    machine: Machine = Machine()


def cases_of(machine: Machine) -> list[Case]:
    names = list(LEVELS)[: machine.metrics]
    tolerances = {name: machine.tolerance if name in names else None for name in LEVELS}
    case = make_case()
    tolerances_ = msgspec.structs.replace(case.tolerances, **tolerances)
    return [
        msgspec.structs.replace(case, id=f"case-{i}", tolerances=tolerances_, single="one rank")
        for i in range(machine.cases)
    ]


class Simulation:
    """One series: a machine's baseline, its cases, and the sessions so far."""

    def __init__(self, life: Life, seed: int) -> None:
        self.life, self.machine = life, life.machine
        self.random = np.random.default_rng(seed)
        self.cases = cases_of(self.machine)
        self.metrics = gated_metrics(self.cases[0])
        self.baseline: Baseline = make_baseline({})
        self.launches = tuple(make_launch(self.cases[0], i) for i in range(LAUNCHES))
        self.moods: Floats = np.zeros((len(self.cases), len(self.metrics)))

    def run(self) -> list[list[Outcome]]:
        """Return the outcomes of all verdicts of each counted day."""
        days = []
        for day in range(self.life.days):
            result = self.judged(self.session(day))
            if day >= self.life.since:
                days.append(
                    [
                        Outcome.PASS
                        if f.known and f.known.state == "expected"
                        else f.verdict.outcome
                        for f in result.findings
                        if f.metric != "structure"
                    ]
                )
            self.store(result, self.life.actions.get(day, "append"))
        return days

    def session(self, day: int) -> SuiteResult:
        date = (START + datetime.timedelta(days=day)).isoformat()
        summaries, logs, control = {}, self.logs(day), self.control
        for i, case in enumerate(self.cases):
            summaries[case.id] = tuple(
                LaunchSummary(
                    round=number,
                    values={
                        name: float(f"{LEVELS[name] * np.exp(logs[i, j, number]):.7g}")
                        for j, name in enumerate(self.metrics)
                    },
                    control_s=float(0.002 * np.exp(control[number])),
                    mean_step_s=0.06,
                    p95_step_s=0.07,
                    throughput=1000.0,
                )
                for number in range(LAUNCHES)
            )
        return SuiteResult(
            suite="months",
            tier="cpu",
            date=date,
            environment=ENVIRONMENT,
            baseline_path="baselines/months.json",
            alpha=0.01 / max(20, len(self.cases) * len(self.metrics)),
            measurements={
                case.id: Measurement(case=case, launches=self.launches, failures=())
                for case in self.cases
            },
            summaries=summaries,
        )

    def logs(self, day: int) -> Floats:
        """Draw the logs of cases × metrics × launches."""
        machine, random = self.machine, self.random
        shape = (len(self.cases), len(self.metrics))
        fresh = np.sqrt(1 - machine.shared) * self.draw(shape)
        fresh = fresh + np.sqrt(machine.shared) * self.draw((1, shape[1]))
        kept = machine.persistence if day else 0.0
        self.moods = kept * self.moods + np.sqrt(1 - kept**2) * fresh
        levels = restless(machine.restless, day) * machine.session * self.moods
        self.control = np.sqrt(machine.control) * levels[0, 0] + random.normal(0, 0.003, LAUNCHES)
        logs = levels[..., None] + random.normal(0, machine.launch, (*shape, LAUNCHES))
        if random.random() < machine.busy:
            logs = logs + random.exponential(0.03, (*shape, LAUNCHES))
        return logs + np.log1p(self.life.change(day))

    def draw(self, shape: tuple[int, int]) -> Floats:
        if self.machine.law == "t3":
            return self.random.standard_t(3, shape) / np.sqrt(3)
        return self.random.normal(size=shape)

    def judged(self, result: SuiteResult) -> SuiteResult:
        return judge_again(result, self.baseline, baseline_path=result.baseline_path)

    def store(self, result: SuiteResult, action: str) -> None:
        if action == "accept":
            self.baseline = merge(
                self.baseline, new_sessions(result), mode="accept", reason="simulated"
            )
        else:
            self.baseline, _ = append(result, self.baseline)
        if action.startswith("acknowledge"):
            until = (START + datetime.timedelta(days=int(action.split()[1]))).date().isoformat()
            given = tuple(
                Acknowledgement(
                    case=case.id, metric=metric, reason="known", until=until, date=result.date
                )
                for case in self.cases
                for metric in self.metrics
            )
            self.baseline = msgspec.structs.replace(self.baseline, acknowledged=given)


def restless(kind, day):
    return (
        3.0
        if (kind == "later" and day >= 30) or (kind == "month" and 30 <= day < 60)
        else 0.5
        if kind == "quieter" and day >= 30
        else 1.0
    )


def step(at: int, size: float, until: int = 10**6) -> Callable[[int], float]:
    return lambda day: size if at <= day < until else 0.0


QUIET, LOOSE = Machine(), Machine(tolerance=0.1, session=0.02, launch=0.02)
MANY = Machine(cases=20, metrics=5)


def _many(**changes) -> Machine:
    return msgspec.structs.replace(MANY, **changes)


FAMILIES = {
    "independent cases": MANY,
    "cases correlated by 0.5": _many(shared=0.5),
    "cases correlated by 0.9": _many(shared=0.9),
    "sessions of 1 %, correlated by 0.5": _many(session=0.01, shared=0.5),
    "sessions correlated by 0.6, cases by 0.5": _many(persistence=0.6, shared=0.5),
    "Student's t, 3 df, cases correlated by 0.5": _many(law="t3", shared=0.5),
    "Student's t, 3 df, independent cases": _many(law="t3"),
    "5 % of sessions busy": _many(busy=0.05, shared=0.5),
    "three times as restless from day 30 on": _many(shared=0.5, restless="later"),
    "a restless month, day 30 to 60": _many(shared=0.5, restless="month"),
    "half as restless from day 30 on": _many(shared=0.5, restless="quieter"),
    "launches of 2 %, sessions of 1 %": _many(session=0.01, launch=0.02, shared=0.5),
    "4 cases": _many(cases=4, shared=0.9),
}
LIVES = [
    *(Life(name=name, days=60, since=1, machine=machine) for name, machine in FAMILIES.items()),
    Life(name="8 sessions, then +5 % for good", days=38, change=step(8, 0.05), since=8),
    Life(name="8 sessions, then +10 % for good", days=38, change=step(8, 0.10), since=8),
    Life(name="30 sessions, then +10 % for good", days=60, change=step(30, 0.10), since=30),
    Life(name="8 sessions, three of +10 %, mended", days=26, change=step(8, 0.1, 11), since=11),
    *(
        Life(
            name=f"+{100 * size:.0f} % from session {at + 1} on",
            days=20,
            change=step(at, size),
            since=at,
        )
        for size in (0.05, 0.1)
        for at in (1, 2, 3)
    ),
    *(
        Life(
            name=f"+20 % from session {at + 1} on, tolerance 10 %",
            days=20,
            change=step(at, 0.2),
            since=at,
            machine=LOOSE,
        )
        for at in (1, 2)
    ),
    Life(name="8 sessions, then 15 % faster for good", days=38, change=step(8, -0.15), since=8),
    Life(name="drift of 0.1 % a session", days=90, change=lambda day: 0.001 * day, since=8),
    Life(
        name="+10 % at 8, accepted at 12",
        days=40,
        change=step(8, 0.10),
        since=13,
        actions={12: "accept"},
    ),
    Life(
        name="+10 % at 8, accepted at 12, +5 % at 20",
        days=40,
        change=lambda d: 1.1 * 1.05 - 1 if d >= 20 else 0.1 if d >= 8 else 0,
        since=20,
        actions={12: "accept"},
    ),
    Life(
        name="+10 % at 8, acknowledged 10 to 20",
        days=40,
        change=step(8, 0.10),
        since=21,
        actions={10: "acknowledge 20"},
    ),
]


def series(job: tuple[str, int]) -> list[list[Outcome]]:
    name, seed = job
    (life,) = [one for one in LIVES if one.name == name]
    return Simulation(life, seed).run()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--series", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    with concurrent.futures.ProcessPoolExecutor(os.cpu_count()) as pool:
        for life in LIVES:
            if options.only not in life.name:
                continue
            jobs = [(life.name, options.seed * 1000 + i) for i in range(options.series)]
            outcomes = list(pool.map(series, jobs))
            if life.name in FAMILIES:
                alarms = np.array(
                    [[sum(o is Outcome.REGRESSION for o in day) for day in one] for one in outcomes]
                )
                n = len(outcomes[0][0])
                days = alarms.size
                passed = np.mean(
                    [[sum(o in GOOD for o in day) / n for day in one] for one in outcomes], axis=0
                )
                print(
                    f"{life.name:45} a month: {30 * (alarms > 0).mean():.2f} red sessions, {30 * alarms.mean():.2f} red verdicts; per verdict {100 * alarms.mean() / n:.4f} %; by time {np.round(30 * (alarms > 0).mean(0)[[slice(0, 5), slice(5, 15), slice(15, 29), slice(29, 60)][0]].mean(), 2)} {30 * (alarms > 0)[:, 5:15].mean():.2f} {30 * (alarms > 0)[:, 15:29].mean():.2f} {30 * (alarms > 0)[:, 29:].mean():.2f}; green day 3,10,60: {100 * passed[2]:.0f} {100 * passed[9]:.0f} {100 * passed[-1]:.0f}",
                    flush=True,
                )
                continue
            red = np.array([[day[0] is Outcome.REGRESSION for day in one] for one in outcomes])
            green = np.array([[day[0] in GOOD for day in one] for one in outcomes])
            sus = np.array([[day[0] is Outcome.SUSPECT for day in one] for one in outcomes])
            shown = [0, 1, 2, 3, 5, 8, 14, red.shape[1] - 1]
            cells = " ".join(
                f"{i + 1}:{100 * red[:, i].mean():.0f}/{100 * sus[:, i].mean():.0f}/{100 * green[:, i].mean():.0f}"
                for i in shown
                if i < red.shape[1]
            )
            first = np.where(red.any(1), red.argmax(1), -1)
            stays = [r[f:].mean() for r, f in zip(red, first) if f >= 0]
            print(
                f"{life.name:45} red/suspect/green {cells}; ever red {100 * red.any(1).mean():.0f} %; first {np.median(first[first >= 0]) + 1 if stays else 0:.0f}; stays {100 * np.mean(stays) if stays else 0:.1f} %",
                flush=True,
            )


if __name__ == "__main__":
    main()
