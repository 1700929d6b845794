"""Write the published JSON Schemas from the types, or check that they are current (--check)."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from ddp_perf.baselines.store import baseline_schema
from ddp_perf.baselines.work import work_schema
from ddp_perf.config.loading import suite_schema
from ddp_perf.duel.bisect.result import BisectResult
from ddp_perf.duel.environments.run import EnvironmentSearch
from ddp_perf.duel.sweep.halving import SweepResult
from ddp_perf.report.commands.judged_series import SeriesFile
from ddp_perf.report.directory import duel_schema, work_report_schema
from ddp_perf.report.notification import Notification
from ddp_perf.scaling.advice.text import AdviceFile
from ddp_perf.session.result import results_schema
from ddp_perf.traces.chrome import TraceAnalysis

ROOT = Path(__file__).parents[1]
SCHEMAS: dict[str, Callable[[], dict[str, Any]]] = {
    "bench_configs/schema.json": suite_schema,
    "baselines/schema/baseline.schema.json": baseline_schema,
    "baselines/schema/work.schema.json": work_schema,
    "docs/advise.schema.json": functools.partial(msgspec.json.schema, AdviceFile),
    "docs/bisect.schema.json": functools.partial(msgspec.json.schema, BisectResult),
    "docs/duel.schema.json": duel_schema,
    "docs/environments.schema.json": functools.partial(msgspec.json.schema, EnvironmentSearch),
    "docs/judge.schema.json": functools.partial(msgspec.json.schema, SeriesFile),
    "docs/notification.schema.json": functools.partial(msgspec.json.schema, Notification),
    "docs/results.schema.json": results_schema,
    "docs/sweep.schema.json": functools.partial(msgspec.json.schema, SweepResult),
    "docs/trace.schema.json": functools.partial(msgspec.json.schema, TraceAnalysis),
    "docs/work-report.schema.json": work_report_schema,
}


def main(check: bool) -> int:
    stale = []
    for name, schema in SCHEMAS.items():
        path, text = ROOT / name, json.dumps(schema(), indent=1) + "\n"
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        stale.append(name)
        if not check:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
    if check and stale:
        print(f"out of date: {', '.join(stale)}; run python ci/schemas.py")
    return int(check and bool(stale))


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv[1:]))
