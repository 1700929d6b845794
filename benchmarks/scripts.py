"""Try training scripts that nobody wrote for this project, and time them from outside.

``python benchmarks/scripts.py CLONES [NAME ...]``: CLONES has clones of their repositories, by
their names. Each script is measured at 1 and 2 ranks over gloo: a baseline, a second session, and
one after an edit of the copy that makes it slower. Then steps are timed from outside, in the same
launch and without this package. A script whose clone or packages are missing is named, and left
out. Exits with 1 where a session is not as it must be, or none was tried.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.real_scripts import SCRIPTS
from benchmarks.script_sessions import sessions
from benchmarks.script_timing import timing
from benchmarks.script_values import RealScript


def main() -> int:
    names = [script.name for script in SCRIPTS]
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("clones", type=Path, help="folder with clones of the repositories")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(names))
    parser.add_argument("--pairs", type=int, default=5, help="of launches timed from outside")
    options = parser.parse_args()
    if unknown := set(options.names) - set(names):
        parser.error(
            f"no script is named {', '.join(sorted(unknown))}; there are {', '.join(names)}"
        )
    chosen = [script for script in SCRIPTS if not options.names or script.name in options.names]
    problems, tried = [], 0
    for script in chosen:
        print(introduction(script), flush=True)
        if (obstacle := obstacle_of(script, options.clones)) is not None:
            print(f"  left out: {obstacle}")
            continue
        tried += 1
        with tempfile.TemporaryDirectory(prefix="scripts-") as scratch:
            problems += _sessions(script, options.clones, Path(scratch) / script.name)
        if script.own_times is not None:
            with tempfile.TemporaryDirectory(prefix="scripts-") as scratch:
                place = Path(scratch) / script.name
                for line in timing(script, options.clones, place, options.pairs):
                    print(f"  {line}", flush=True)
    print(f"{tried} of {len(chosen)} scripts were tried.")
    if problems:
        print("\n".join(["Not as it must be:", *problems]))
    return int(bool(problems) or not tried)


def introduction(script: RealScript) -> str:
    """Return where the script is from, and what was edited for a machine without GPUs."""
    repository = script.repository
    edits = len(script.for_cpu)
    edited = f"{edits} lines edited, since it insists on GPUs" if edits else "unmodified"
    return (
        f"{script.name}: {script.path} of {repository.url} at {repository.commit[:12]}"
        f" ({repository.licence}); {edited}"
    )


def obstacle_of(script: RealScript, clones: Path) -> str | None:
    """Return why the script cannot be tried here, and the remedy; None: it can."""
    repository = script.repository
    if not (clones / repository.name / script.path).is_file():
        clone = f"git clone {repository.url} {clones / repository.name}"
        return f"there is no {clones / repository.name / script.path}; {clone}"
    if script.missing:
        return f"pip install {' '.join(script.missing)}"
    return None


def _sessions(script: RealScript, clones: Path, place: Path) -> list[str]:
    problems = []
    for shown in sessions(script, clones, place):
        print(f"  {shown.case_id}: step {1e3 * shown.step_s:.2f} ms")
        print(f"    second session: {shown.second}")
        print(f"    edited:         {shown.edited}; {shown.cause}", flush=True)
        problems += shown.problems(script)
    return problems


if __name__ == "__main__":
    sys.exit(main())
