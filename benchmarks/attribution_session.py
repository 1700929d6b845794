"""One session of the attribution's workload, slowed in one way, as a small results file.

``python attribution_session.py WORKLOAD_FOLDER FILE explain|judge`` measures it as pytest would: it
runs the launches that the gate judges, and, to explain, the explainer's further ones. It
runs in a process of its own, with the environment that a cause needs.
"""

from __future__ import annotations

import contextlib
import datetime
import gzip
import sys
import tempfile
from pathlib import Path
from typing import Any

import msgspec

sys.path.insert(0, str(Path(__file__).parents[1]))

from ddp_perf.baselines.save import merge
from ddp_perf.config.cases import Variant, cases_of
from ddp_perf.config.suite import TrainingSuite
from ddp_perf.core.baseline import Baseline
from ddp_perf.core.case import Case
from ddp_perf.core.measurement import Measurement
from ddp_perf.core.metric import gated_metrics
from ddp_perf.launch.launcher import Launcher
from ddp_perf.launch.server_launcher import ServerLauncher
from ddp_perf.session.measure.environment import describe_environment
from ddp_perf.session.measure.further_launches import Explainer
from ddp_perf.session.measure.rounds import interleave, run_plan
from ddp_perf.session.result import ResultsFile, SuiteResult, read_results
from ddp_perf.session.store_baseline import new_sessions
from ddp_perf.stats.rule.error_rate import alpha_per_metric
from ddp_perf.stats.summary import summaries_of
from ddp_perf.system.capacity import find_capacity
from ddp_perf.system.lease import machine_lease
from tests.suites import make_bench

FALSE_ALARMS, EXPLAIN_BUDGET_S = 0.01, 30.0  # the defaults of pytest's options
SUITE = {
    "suite": "attribution",
    "tier": "cpu",
    "workload": "encoder:build",
    "data": {"num_workers": 0},
    "ddp": {"bucket_cap_mb": 1},
    "world_sizes": [2],
    "batch_sizes": [8],
    "steps": 20,
    "warmup": 5,
    "launches": 5,
}
_DIGITS = 5  # significant ones that a recording keeps
_NOT_KEPT: dict[str, Any] = {
    "cpu_s": [],
    "ddp_logging": {},
    "baseline_path": "",
    "explanations": {},
}


def main(folder: str, file: str, mode: str) -> None:
    """Measure a session of the workload in a folder, and write it."""
    (case,) = cases_of(Variant(suite=msgspec.convert(SUITE, TrainingSuite)))
    with (
        contextlib.closing(ServerLauncher()) as launcher,
        machine_lease(patience_s=600, on_wait=lambda message: print(message, file=sys.stderr)),
    ):
        result = _measured(case, launcher, Path(folder), explain=mode == "explain")
    write_recording(Path(file), result)


def _measured(case: Case, launcher: Launcher, folder: Path, *, explain: bool) -> SuiteResult:
    bench = make_bench(folder, launcher, import_paths=(str(folder),))
    none = {case.id: Measurement(case=case, launches=(), failures=())}
    plan = interleave([(case, case.schedule.launches)], bench)
    measured = run_plan(plan, bench, measured=none, on_round=lambda measured: None)
    for failure in measured[case.id].failures:
        raise SystemExit(f"{failure}\n{failure.traceback}")
    result = SuiteResult(
        suite=case.suite,
        tier=case.tier,
        date=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        environment=describe_environment(
            find_capacity(), case.tier, launcher.runtime(case), folder
        ),
        baseline_path="",
        alpha=alpha_per_metric(FALSE_ALARMS, len(gated_metrics(case))),
        measurements=measured,
        summaries={case_id: tuple(rows) for case_id, rows in summaries_of(measured).items()},
    )
    if not explain:
        return result
    # Any baseline with terms makes the explainer launch; the score explains by the right one.
    empty = Baseline(accelerator=result.environment.accelerator_key, units={})
    itself = merge(empty, new_sessions(result), mode="append", reason=None)
    explainer = Explainer(baseline=itself, bench=bench, budget_s=EXPLAIN_BUDGET_S)
    return explainer.explained(result, case.id)


def write_recording(path: Path, result: SuiteResult) -> None:
    """Write a session without the machine's names and what no explanation reads: about 12 KB."""
    environment = msgspec.structs.replace(
        result.environment, accelerator_key="cpu", host="host", os="Linux", commit=None
    )
    result = msgspec.structs.replace(result, environment=environment)
    raw = msgspec.to_builtins(ResultsFile(complete=True, suites=(result,)))
    scratch = path.with_suffix(".part")
    scratch.write_bytes(gzip.compress(msgspec.json.encode(_compact(raw)), mtime=0))
    scratch.replace(path)  # a killed run leaves whole recordings only


def read_recording(path: Path) -> SuiteResult:
    """Read a recorded session."""
    with tempfile.NamedTemporaryFile(suffix=".json") as plain:
        plain.write(gzip.decompress(path.read_bytes()))
        plain.flush()
        (result,) = read_results(Path(plain.name)).suites
    return result


def _compact(value: Any) -> Any:
    """Round each figure, and empty the fields that are not kept."""
    if isinstance(value, float):
        return float(f"{value:.{_DIGITS}g}")
    if isinstance(value, dict):
        return {key: _NOT_KEPT.get(key, _compact(one)) for key, one in value.items()}
    return [_compact(one) for one in value] if isinstance(value, list | tuple) else value


if __name__ == "__main__":
    main(*sys.argv[1:])
