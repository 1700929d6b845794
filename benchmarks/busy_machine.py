"""Measure what the gate decides on a machine whose cores are not its own.

``python benchmarks/busy_machine.py [--neighbours N]`` runs real sessions of cpu_quick beside
processes that each take a whole core half of the time: four are stored, one is judged unchanged,
and one with a slow-down of 20 %. It prints the verdicts, and how many were decided. Run it on a
machine that does nothing else; it takes about six minutes.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from ddp_perf.core.measurement import Finding
from ddp_perf.core.verdict import Outcome
from ddp_perf.session.result import read_results

ROOT = Path(__file__).parents[1]
STORED = 4
DECIDED = ("PASS", "IMPROVEMENT", "REGRESSION")
_NEIGHBOUR = """
import random, time
while True:
    end = time.monotonic() + random.uniform(0.2, 1.0)
    while time.monotonic() < end:
        pass
    time.sleep(random.uniform(0.2, 1.0))
"""


@contextlib.contextmanager
def neighbours(count: int) -> Iterator[None]:
    """Run processes that compute half of the time, each in a session of its own as a stranger's."""
    command = [sys.executable, "-c", _NEIGHBOUR]
    processes = [subprocess.Popen(command, start_new_session=True) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def session(project: Path, *options: str) -> Sequence[Finding]:
    """Run a session of pytest, and return its findings."""
    command = [sys.executable, "-m", "pytest", "-q", "-m", "perf and cpu", *options]
    run = subprocess.run(
        [*command, "--ddp-config", "bench_configs/cpu_quick.yaml", "--ddp-json", "results.json"],
        cwd=project,
        capture_output=True,
        text=True,
    )
    if run.returncode not in (0, 1):
        raise SystemExit(run.stdout + run.stderr)
    (suite,) = read_results(project / "results.json").suites
    return suite.findings


def age(project: Path) -> None:
    """Date every stored session a day back: sessions of one half-day count as one."""
    for path in (project / "baselines").glob("*.json"):
        baseline = json.loads(path.read_text())
        for case in baseline["cases"].values():
            for stored in case["sessions"]:
                date = datetime.datetime.fromisoformat(stored["date"])
                stored["date"] = (date - datetime.timedelta(days=1)).isoformat()
        path.write_text(json.dumps(baseline))


def describe(findings: Sequence[Finding]) -> str:
    """Return the number of verdicts of each kind, and the share of decided ones."""
    outcomes = Counter(found.verdict.outcome.value for found in findings)
    decided = sum(outcomes[outcome] for outcome in DECIDED)
    kinds = ", ".join(f"{count} {outcome}" for outcome, count in outcomes.most_common())
    return f"{decided} of {len(findings)} decided ({decided / len(findings):.0%}): {kinds}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--neighbours", type=int, default=1, help="processes (%(default)s)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory, neighbours(options.neighbours):
        project = Path(directory)
        for name in ("bench_configs", "conftest.py", "pytest.ini", "tests/perf", "ddp_perf"):
            source, target = ROOT / name, project / name
            target.parent.mkdir(exist_ok=True)
            shutil.copytree(source, target) if source.is_dir() else shutil.copy(source, target)
        for number in range(1, STORED + 1):
            stored = session(project, "--save-baseline=append")
            print(f"session {number}: {describe(stored)}", flush=True)
            age(project)
        for title, more in (("unchanged", ()), ("20 % slower", ("--ddp-inject", "compute:20%"))):
            findings = session(project, *more)
            print(f"{title}: {describe(findings)}", flush=True)
            for found in findings:
                outcome = found.verdict.outcome
                if outcome is not Outcome.PASS:
                    print(
                        f"  {found.case_id} {found.metric}: {outcome.value}: {found.reason[:120]}"
                    )


if __name__ == "__main__":
    main()
