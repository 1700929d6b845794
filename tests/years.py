"""Sessions of a machine for a year: a session of up to 20 cases a day, another commit each day."""

from __future__ import annotations

import datetime
import functools
import itertools
import random
from collections.abc import Collection, Iterator

from ddp_perf.baselines.save import NewSession, merge
from ddp_perf.core.baseline import CONTROL, TYPICAL_STEP, Baseline, Session
from ddp_perf.core.case import Case
from ddp_perf.core.decomposition import COMMUNICATION, COUNTS, LAG, TERMS
from ddp_perf.core.environment import Environment
from ddp_perf.core.metric import METRICS
from ddp_perf.core.verdict import Outcome
from tests.builders import make_baseline, make_case, make_environment, make_structure

CASES, DAYS, LAUNCHES = 20, 365, 5
DAYS_OF_A_VERSION = 60  # then torch is upgraded
# Of a case on GPUs: one on CPUs has the CPU time instead of the energy.
_FIGURES = (*(m.name for m in METRICS if m.tier != "cpu"), CONTROL, TYPICAL_STEP)
_TERMS = (*TERMS, COMMUNICATION, LAG, *COUNTS)


@functools.cache
def year_of_sessions(red: range = range(0), *, cases: int = CASES) -> Baseline:
    """Append a year of sessions; in the days ``red`` the step time of each case is REGRESSION.

    Nobody writes to what is returned: tests share it.
    """
    baseline = make_baseline()
    for day in range(DAYS):
        baseline = append_day(baseline, day, red=red, cases=cases)
    return baseline


def append_day(
    baseline: Baseline, day: int, *, red: Collection[int] = (), cases: int = CASES
) -> Baseline:
    """Append the sessions of a day, counted from 0."""
    sessions = itertools.islice(_sessions(day, red), cases)
    return merge(baseline, list(sessions), mode="append", reason=None)


def date_of(day: int) -> str:
    """Return the date of a day's session."""
    start = datetime.datetime(2025, 1, 1, 3, 4, 5, tzinfo=datetime.timezone.utc)
    return (start + datetime.timedelta(days=day)).isoformat()


def _sessions(day: int, red: Collection[int]) -> Iterator[NewSession]:
    environment = _environment(day)
    for number in range(CASES):
        dice = random.Random(f"{day} {number}")
        session = Session(
            date=date_of(day),
            environment=environment,
            launches=tuple(_row(dice, _FIGURES, 7) for _ in range(LAUNCHES)),
            terms=tuple(_row(dice, _TERMS, 4) for _ in range(LAUNCHES)),
            overhead_s=1.234,
            verdicts={"step_time": Outcome.REGRESSION} if day in red else {},
        )
        yield NewSession(case=_cases()[number], session=session, structure=make_structure())


@functools.cache
def _cases() -> list[Case]:
    return [make_case(id=f"mlp-ddp-bf16-ws8-b{number}") for number in range(CASES)]


def _environment(day: int) -> Environment:
    return make_environment(
        interconnect="NV18",
        gpu_memory=150_754_820_096,
        power_limit_w=700.0,
        torch=f"2.{day // DAYS_OF_A_VERSION}.0",
        variables={"NCCL_DEBUG": "WARN", "OMP_NUM_THREADS": "8"},
        commit=f"{day:012x}",
    )


def _row(dice: random.Random, names: Collection[str], digits: int) -> dict[str, float]:
    return {name: float(f"{dice.uniform(0.01, 0.02):.{digits}g}") for name in names}
