"""One suite measured and judged on a launcher that starts no process."""

from __future__ import annotations

import datetime
import itertools
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ddp_perf.baselines.store import BaselineStore
from ddp_perf.core.case import Case
from ddp_perf.session.measure import suite
from ddp_perf.session.measure.rounds import Bench, SessionOptions
from ddp_perf.session.measure.storable import Settle
from ddp_perf.session.measure.suite import SuiteRequest, run_suite
from ddp_perf.session.result import SuiteResult
from ddp_perf.system.capacity import Capacity
from tests.builders import FakeLauncher, NotedProgress, make_capacity


def one_session_a_day(monkeypatch: pytest.MonkeyPatch, *, days: float = 1) -> None:
    """Let each further session that is measured begin a day, or ``days``, after the one before."""
    sessions = itertools.count()
    start = datetime.datetime(2026, 1, 1, tzinfo=datetime.timezone.utc)

    def now(zone: datetime.tzinfo) -> datetime.datetime:
        return start.astimezone(zone) + datetime.timedelta(days=days * next(sessions))

    clock = types.SimpleNamespace(
        datetime=types.SimpleNamespace(now=now), timezone=datetime.timezone
    )
    monkeypatch.setattr(suite, "datetime", clock)


def make_bench(directory: Path, launcher: Any = None, **fields: Any) -> Bench:
    """Return a bench whose launches all succeed, unless ``launcher`` decides otherwise."""
    return Bench(
        **{
            "launcher": launcher or FakeLauncher(),
            "progress": NotedProgress(),
            "root": directory,
            "capacity": make_capacity(),
            "store": BaselineStore(directory / "baselines"),
            **fields,
        }
    )


def measure_suite(
    bench: Bench,
    *,
    capacity: Capacity | None = None,
    on_partial: Callable[[SuiteResult], None] = lambda result: None,
    on_judged: Callable[[SuiteResult], None] = lambda result: None,
    other_work: Callable[[Case], str | None] = lambda case: None,
    settle: Settle | None = None,
    **fields: Any,
) -> SuiteResult:
    """Run one session of the suite "quick"; ``fields`` are those of its request and its options.

    Baselines are in the root's baselines/. No further launches are made unless ``fields`` allow
    them.
    """
    options = {"budget_s": 0, "explain_budget_s": 0}
    options.update(
        {name: fields.pop(name) for name in SessionOptions.__struct_fields__ if name in fields}
    )
    return run_suite(
        SuiteRequest(
            **{"suite": "quick", "alpha": 0.001, "options": SessionOptions(**options), **fields}
        ),
        bench if capacity is None else msgspec.structs.replace(bench, capacity=capacity),
        on_partial=on_partial,
        on_judged=on_judged,
        other_work=other_work,
        settle=settle,
    )
