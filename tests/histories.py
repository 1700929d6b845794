"""A history of several cases on two machines, with regressions in every state, and audits."""

from __future__ import annotations

import contextlib
import datetime
import functools
from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np

from ddp_perf.core.case import Case
from ddp_perf.core.metric import METRICS
from ddp_perf.core.verdict import GateAudit, Outcome, Settled
from ddp_perf.history.records import (
    CaseRecord,
    RecordedFigure,
    RecordedVerdict,
    SessionInfo,
    SessionRecord,
)
from ddp_perf.history.store import HistoryStore, chunks_of
from ddp_perf.site.views import SiteViews, views_of
from tests.builders import make_cases, make_culprit, make_environment

MACHINES = ("cpu-epyc-2c-a", "cpu-xeon-4c-b")
FIRST = datetime.datetime(2026, 1, 1, 3, tzinfo=datetime.timezone.utc)
JOB = "https://github.com/we/train/actions/runs/{}"
_LEVELS = {
    "step_time": 0.01,
    "tail": 1.02,
    "efficiency": 1.3,
    "cpu_time": 0.009,
    "peak_memory": 3.1e8,
}
# The share of the sessions in which each of the first cases is slow, by 12 %, and how it ended.
SLOW = {0: (0.8, 1.0, ""), 1: (0.7, 1.0, "acknowledged"), 2: (0.3, 0.5, ""), 3: (0.4, 1.0, "kept")}


def fill_history(url: str, *, cases: int = 8, sessions: int = 60) -> None:
    """Append a session a day. Half of the cases are on each machine, and case 0 is on both."""
    store = HistoryStore(url)
    for records in chunks_of(_records(cases, sessions), 50):
        store.append(records)
    for audit in _audits(sessions):
        store.append_audit(audit)
    store.close()


@contextlib.contextmanager
def views_of_history(directory: Path, *, cases: int = 8, sessions: int = 60) -> Iterator[SiteViews]:
    """Yield what a site shows of a history in this directory, as `fill_history` makes it."""
    url = f"sqlite:///{directory / 'h.sqlite'}"
    fill_history(url, cases=cases, sessions=sessions)
    with contextlib.closing(HistoryStore(url)) as store:
        yield views_of(store)


def _records(cases: int, sessions: int) -> Iterator[SessionRecord]:
    noise = np.random.default_rng(3).normal(0, 0.004, (sessions, cases, len(METRICS)))
    for day in range(sessions):
        date = (FIRST + datetime.timedelta(days=day)).isoformat(timespec="seconds")
        for place, machine in enumerate(MACHINES):
            numbers = [n for n in range(cases) if n % 2 == place or n == 0]
            environment = make_environment(
                accelerator_key=machine,
                host=machine[-1],
                commit=f"{day * 7919 + 0xABCDEF:012x}",
                torch="2.13.0" if day < sessions / 2 else "2.14.1",
            )
            yield SessionRecord(
                info=SessionInfo(
                    suite="nightly",
                    tier="cpu",
                    date=date,
                    started=date,
                    environment=environment,
                    job=JOB.format(day),
                ),
                cases=tuple(_case(n, day / sessions, noise[day, n], place) for n in numbers),
            )


@functools.cache
def _case_of(number: int) -> Case:
    """Return the case of this number: 2 to 16 ranks, with DDP or FSDP."""
    strategy, ranks, batch = ("ddp", "fsdp")[number // 4 % 2], 2 ** (number % 4 + 1), number // 8
    return make_cases(world_sizes=[1, ranks], batch_sizes=[32 * (batch + 1)], strategy=strategy)[-1]


def _case(number: int, when: float, noise: np.ndarray, place: int) -> CaseRecord:
    case = _case_of(number)
    begin, end, kind = SLOW.get(number, (2.0, 2.0, ""))
    slow = begin <= when < end
    figures = []
    for metric, wobble in zip(METRICS[: len(_LEVELS)], noise, strict=False):
        level = _LEVELS[metric.name] * (1 + number) ** (metric.unit != "ratio")
        level *= 1 + 0.3 * place * (metric.unit == "s")
        value = level * (1.12 if slow and metric.name == "step_time" else 1.0) * (1 + wobble)
        red = slow and metric.name == "step_time" and not (kind == "kept" and when > begin + 0.2)
        figures.append(
            RecordedFigure(
                metric=metric.name,
                value=float(value),
                launches=tuple(float(value * f) for f in (0.99, 1.0, 1.01)),
                verdict=_verdict(value / level, red=red, kind=kind),
                baseline=float(level),
            )
        )
    return CaseRecord(case_id=case.id, work=case.work(), figures=tuple(figures))


def _verdict(ratio: float, *, red: bool, kind: str) -> RecordedVerdict:
    culprit = make_culprit(name="abcdef123456", author="A. Person", interval=(1.1, 1.14))
    settled = Settled(reference=FIRST.isoformat(), label="2026-01-01 (abcdef)", pairs=12)
    return RecordedVerdict(
        outcome=Outcome.REGRESSION if red else Outcome.PASS,
        reason=f"{'above' if red else 'within'} 4 % of the stored level",
        ratio=float(ratio),
        interval=(float(ratio) - 0.02, float(ratio) + 0.02),
        acknowledged="the new loss is worth it" if red and kind == "acknowledged" else None,
        settled=msgspec.structs.replace(settled, culprit=culprit) if red else None,
    )


def _audits(sessions: int) -> Iterator[GateAudit]:
    sizes = (0.08, 0.0, 0.05, 0.02)
    for day in range(0, sessions, 3):
        size = sizes[day // 3 % len(sizes)]
        yield GateAudit(
            date=(FIRST + datetime.timedelta(days=day)).isoformat(timespec="seconds"),
            suite="nightly",
            case_id=_case_of(0).id,
            tier="cpu",
            accelerator=MACHINES[0],
            host="a",
            commit=None,
            torch="2.13.0",
            seed=day,
            size=size,
            tolerance=0.04,
            outcome=Outcome.REGRESSION if size >= 0.05 and day % 5 else Outcome.PASS,
            ratio=1 + size,
            interval=None,
            stage="sessions",
            seconds=20.0,
        )
