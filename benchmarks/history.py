"""Measure the history: import a million rows, the trend of one case, and of all cases.

SQLite in a directory of its own; with a URL as argument, that (empty) PostgreSQL database.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Iterator

import numpy as np

from ddp_perf.core.environment import Environment
from ddp_perf.core.metric import STEP_TIME
from ddp_perf.core.verdict import Outcome
from ddp_perf.history.records import (
    CaseRecord,
    RecordedFigure,
    RecordedVerdict,
    SessionInfo,
    SessionRecord,
)
from ddp_perf.history.store import TOGETHER, HistoryStore, chunks_of
from ddp_perf.history.trend import find_trend

CASES, SESSIONS, LAUNCHES = 1000, 1000, 5
TRENDS = 50
REASON = (
    "+0.3 % against 5 sessions (99 % interval -0.8 % to +1.4 %); 4 % more, twice the tolerance,"
    " is ruled out; 2.6 % or more is found 9 times in 10"
)


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        url = sys.argv[1] if len(sys.argv) > 1 else f"sqlite:///{directory}/history.sqlite"
        store = HistoryStore(url)
        took = cpu = 0.0
        for batch in chunks_of(sessions(), TOGETHER):
            began, began_cpu = time.perf_counter(), time.process_time()
            store.append(batch)
            took += time.perf_counter() - began
            cpu += time.process_time() - began_cpu
        rows = CASES * SESSIONS
        print(
            f"import: {rows:,} rows of {SESSIONS} sessions in {took:.0f} s, {rows / took:,.0f}"
            f" rows/s ({cpu:.0f} s of CPU), {TOGETHER} sessions a transaction"
            f" ({store.name.partition(':')[0]}; target: 20,000 rows/s)"
        )
        cases = store.cases()
        find_trend([1.0, 1.1, 1.0, 1.1])  # loads what is loaded once
        fresh = [_trend_seconds(url, number) for number in range(0, CASES, CASES // TRENDS)]
        print(
            f"trend of one case of {SESSIONS} sessions, the store opened anew:"
            f" {1e3 * statistics.median(fresh):.0f} ms, slowest of {TRENDS}"
            f" {1e3 * max(fresh):.0f} ms (target: 50 ms)"
        )
        began, began_cpu = time.perf_counter(), time.process_time()
        for case in cases:
            _trend(store, case)
        took, cpu = time.perf_counter() - began, time.process_time() - began_cpu
        print(
            f"trends of all {CASES} cases: {took:.0f} s in one process ({cpu:.0f} s of CPU;"
            " target: 60 s on two cores)"
        )
        store.close()


def sessions() -> Iterator[SessionRecord]:
    """Yield sessions with an sd of 1 %. A tenth of the cases have a change point of 3 %."""
    random = np.random.default_rng(1)
    steps = np.where(np.arange(CASES) % 10 == 0, random.integers(100, SESSIONS, CASES), SESSIONS)
    for session in range(SESSIONS):
        levels = np.exp(random.normal(0, 0.01, CASES)) * np.where(session >= steps, 1.03, 1.0)
        launches = levels[:, None] * np.exp(random.normal(0, 0.01, (CASES, LAUNCHES))) * 0.01
        year, month, day = 2024 + session // 336, 1 + session // 28 % 12, 1 + session % 28
        date = f"{year}-{month:02}-{day:02}T03:00:00+00:00"
        yield SessionRecord(
            info=SessionInfo(
                suite="thousand", tier="cpu", date=date, started=date, environment=_environment()
            ),
            cases=tuple(
                _case(number, row) for number, row in enumerate(launches.round(7).tolist())
            ),
        )


def _case(number: int, launches: list[float]) -> CaseRecord:
    verdict = RecordedVerdict(
        outcome=Outcome.PASS, reason=REASON, ratio=1.003, interval=(0.992, 1.014)
    )
    figure = RecordedFigure(
        metric=STEP_TIME.name,
        value=statistics.median(launches),
        launches=tuple(launches),
        verdict=verdict,
        baseline=0.01,
    )
    work = {"workload": "mlp", "strategy": "ddp", "world_size": 2, "batch_size": number}
    return CaseRecord(case_id=f"mlp-ddp-fp32-ws2-b{number}", work=work, figures=(figure,))


def _environment() -> Environment:
    return Environment(
        accelerator="Some Processor",
        accelerator_key="cpu-some-2c-host",
        accelerator_count=2,
        interconnect=None,
        host="host",
        os="Linux",
        python="3.11.2",
        torch="2.13.0",
        cuda=None,
        cudnn=None,
        nccl=None,
        driver=None,
        blas="mkl",
        commit="0123456789ab",
    )


def _trend_seconds(url: str, number: int) -> float:
    store = HistoryStore(url, create=False)
    case = store.cases()[number]
    began = time.perf_counter()
    _trend(store, case)
    took = time.perf_counter() - began
    store.close()
    return took


def _trend(store: HistoryStore, case: object) -> None:
    series = store.series(case, STEP_TIME.name)
    find_trend([session.figure.value for session in series.sound()])


if __name__ == "__main__":
    main()
