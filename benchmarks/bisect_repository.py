"""Time the search for a commit on real ranks: 32 commits, one of them slower by 8 %.

``python benchmarks/bisect_repository.py [--slow N] [--more 1.08] [--budget 15m]`` makes the
repository in a temporary directory, runs ``ddp-perf bisect`` in it with an empty cache, and prints
its report and the time of the whole. Two commits do not import. The slow-down is exact work: more
rows of each matrix product. ``--touching 3,12,21,30`` has all other commits edit a file that the
case does not read, and ``--ranks 2`` trains by DDP over gloo. With ``--night``, ``ci/nightly``
stores a session of the first commit and measures the last one: it must be red, and name the commit
by itself. Exit code 0: the right commit was named.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.bisect_repository import CASE, TWO_RANKS, RowsRepository

ROOT = Path(__file__).parents[1]
COMMITS, BROKEN = 32, frozenset({9, 24})
COMMAND = "from ddp_perf.cli.app import app; app()"
SETUP = """\
cd "$(dirname "${{BASH_SOURCE[0]}}")/.."
export PATH={scripts}:$PATH
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--slow", type=int, default=21, help="place of the slower commit, 1 to 32")
    parser.add_argument("--more", type=float, default=1.08, help="its rows ÷ those before it")
    parser.add_argument("--budget", default="15m")
    parser.add_argument("--touching", type=_places, help="the other commits touch no case")
    parser.add_argument("--ranks", type=int, choices=(1, 2), default=1)
    parser.add_argument("--night", action="store_true", help="ci/nightly searches by itself")
    given = parser.parse_args()
    repository = RowsRepository(
        commits=COMMITS,
        slow=given.slow,
        more=given.more,
        broken=BROKEN,
        rows=1000,
        width=256,
        steps=30,
        warmup=5,
        touching=given.touching,
        ranks=given.ranks,
    )
    with tempfile.TemporaryDirectory() as directory:
        project = Path(directory) / "project"
        project.mkdir()
        if given.night:
            _add_night(project)
        repository.write(project)
        if given.night:
            return _nights(project, Path(directory) / "cache", f"Edit {given.slow} of the workload")
        begin = time.monotonic()
        case = CASE if given.ranks == 1 else TWO_RANKS
        code, result = _search(project, Path(directory) / "cache", case, given.budget)
        wall_s = time.monotonic() - begin
    named = [[commit["subject"] for commit in one["commits"]] for one in result["culprits"]]
    right = len(named) == 1 and f"Edit {given.slow} of the workload" in named[0]
    print(f"{'right' if right else 'not right'} in {wall_s:.0f} s, exit code {code}: {named}")
    places = [each["place"] for each in result["asked"]]
    print(f"{result['launches']} launches of {places}, by {result['metric']}: {result['why']}")
    return int(not right)


def _add_night(project: Path) -> None:
    """Put the nightly gate and its tests into the project."""
    (project / "ci").mkdir()
    shutil.copy(ROOT / "ci" / "nightly", project / "ci")
    setup = SETUP.format(scripts=Path(sys.executable).parent)
    (project / "ci" / "setup.sh").write_text(setup, encoding="utf-8")
    shutil.copytree(ROOT / "tests" / "perf", project / "tests" / "perf")
    shutil.copy(ROOT / "pytest.ini", project)
    (project / ".gitignore").write_text("__pycache__/\nartifacts/\n.pytest_cache/\n")


def _nights(project: Path, cache: Path, slower: str) -> int:
    """Store a night of the first commit, and measure the last one. Return 0 if it is named."""
    for commit, option in (("good", "--save-baseline"), ("main", "--save-baseline=append")):
        subprocess.run(["git", "checkout", "-q", commit], cwd=project, check=True)
        begin = time.monotonic()
        done = subprocess.run(
            ["ci/nightly", "--tier", "cpu", option],
            cwd=project,
            env={**os.environ, "PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": str(cache)},
            check=False,
        )
        print(f"night of {commit}: exit code {done.returncode}, {time.monotonic() - begin:.0f} s")
    results = json.loads((project / "artifacts" / "nightly" / "results.json").read_bytes())
    settled = [one for suite in results["suites"] for one in suite["settled"].values()]
    named = [one["culprit"]["title"] for one in settled if one.get("culprit")]
    right = done.returncode == 1 and named == [slower]
    print("right" if right else "not right", named)
    return int(not right)


def _places(text: str) -> frozenset[int]:
    return frozenset(map(int, text.split(",")))


def _search(project: Path, cache: Path, case: str, budget: str) -> tuple[int, dict[str, Any]]:
    """Search twice: the second time nothing is left to launch, and the report is for people."""
    arguments = ["bisect", "--good", "good", "--bad", "main", "--case", case, "--budget", budget]
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": str(cache)}
    command = [sys.executable, "-c", COMMAND, *arguments]
    done = subprocess.run(
        [*command, "--json"], cwd=project, env=environ, stdout=subprocess.PIPE, check=False
    )
    subprocess.run([*command, "--budget", "1s"], cwd=project, env=environ, check=False)
    return done.returncode, json.loads(done.stdout)


if __name__ == "__main__":
    sys.exit(main())
