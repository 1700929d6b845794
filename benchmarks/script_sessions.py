"""Sessions of a real script: a baseline, another one, and one with an edit that makes it slower."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import msgspec

from benchmarks.script_values import RealScript
from ddp_perf.core.verdict import Outcome
from ddp_perf.session.result import SuiteResult, read_results

ROOT = Path(__file__).parents[1]
_COMMAND = "from ddp_perf.cli.app import app; app()"
_EXAMPLES = ("bench_configs/example.yaml", "perf_workload.py", "tests/test_work.py")
_TIMES = ("step_time", "cpu_time")
_BUDGETS = ("--ddp-budget=20s",)


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """What the sessions of a script showed of one case."""

    case_id: str
    step_s: float
    not_stored: str  # why the baseline lacks times, by metric; "": it has both
    second: str  # outcomes
    edited: str
    cause: str

    def problems(self, script: RealScript) -> list[str]:
        """Return what is not as it must be."""
        wrong = []
        if self.not_stored:
            wrong.append(f"not stored: {self.not_stored}")
        if Outcome.REGRESSION.value in self.second:
            wrong.append("the second session is red, but nothing was changed")
        if Outcome.REGRESSION.value not in self.edited:
            wrong.append("the edit is not red")
        elif not self.cause.startswith(script.causes):
            wrong.append(f"the cause is not {' or '.join(script.causes)}")
        return [f"{script.name} {self.case_id}: {problem}" for problem in wrong]


def sessions(script: RealScript, clones: Path, directory: Path) -> list[Shown]:
    """Measure the three sessions in a project that is made in the directory."""
    script.place(clones, directory)
    _run([sys.executable, "-c", _COMMAND, "init", "."], directory, script.name)
    for example in _EXAMPLES:
        (directory / example).unlink()
    for name, suite in script.suites().items():
        file = directory / "bench_configs" / f"{name}.yaml"
        file.write_bytes(msgspec.yaml.encode(suite))
    baseline = _session(script, directory, "baseline", "--save-baseline")
    second = _session(script, directory, "second")
    script.slower.make(directory)
    edited = _session(script, directory, "edited")
    return [
        _shown(case_id, *(each.get(case_id) for each in (baseline, second, edited)))
        for case_id in baseline
    ]


def _shown(case_id: str, baseline: SuiteResult | None, *later: SuiteResult | None) -> Shown:
    second, edited = later
    assert baseline is not None  # the case is one of its
    steps = [one.typical_step_s for one in baseline.summaries.get(case_id, ())]
    explained = None if edited is None else edited.explanations.get(case_id)
    cause = explained.causes[0] if explained is not None and explained.causes else None
    return Shown(
        case_id=case_id,
        step_s=median(steps) if steps else math.nan,
        not_stored=not_stored_text(baseline, case_id),
        second=outcomes_text(second, case_id),
        edited=outcomes_text(edited, case_id),
        cause="–" if cause is None else f"{cause.kind}: {'; '.join(cause.evidence)}",
    )


def not_stored_text(baseline: SuiteResult, case_id: str) -> str:
    """Return why the step time or the CPU time of a case was not stored; "" if both were."""
    if case_id in baseline.not_saved:
        return baseline.not_saved[case_id].reason
    if case_id not in baseline.saved:
        failures = baseline.measurements[case_id].failures
        return "; ".join(map(str, failures)) or "the case was not measured"
    without = baseline.saved[case_id].without
    return "; ".join(f"{metric}: {without[metric]}" for metric in _TIMES if metric in without)


def outcomes_text(result: SuiteResult | None, case_id: str) -> str:
    """Return the outcomes of the times of a case, with their metrics: ``PASS (step_time)``."""
    found = [] if result is None else result.findings
    return ", ".join(
        f"{one.verdict.outcome.value} ({one.metric})"
        for one in found
        if one.case_id == case_id and one.metric in (*_TIMES, "structure")
    )


def _session(
    script: RealScript, directory: Path, name: str, *options: str
) -> dict[str, SuiteResult]:
    """Return the result of the suite of each case."""
    results = directory / f"{name}.json"
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q"]
    chosen = ["tests/test_perf.py", "-m", "perf and cpu", f"--ddp-json={results}"]
    _run([*command, *chosen, *_BUDGETS, *options], directory, script.name, results)
    return {
        case_id: suite for suite in read_results(results).suites for case_id in suite.measurements
    }


def _run(command: Sequence[str], directory: Path, name: str, results: Path | None = None) -> None:
    """Run a command; show its output and end if it is to write results and does not."""
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, cwd=directory, env=environ, capture_output=True, text=True, check=False
    )
    if done.returncode if results is None else not results.exists():
        raise SystemExit(f"{name}: {' '.join(command)}\n{done.stdout}{done.stderr}")
