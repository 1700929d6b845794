"""Try every fault in every place: what does the user see, what is kept, and what is left over?

    python benchmarks/faults [--part NAME ...] [--trials N] [--seed N] [--write]

A part is a file beside this one. ``--write`` records the rows of the parts that ran in
``benchmarks/data/faults.json``, of which `ci/reference.py` makes docs/reliability.md. It exits with
1 if anything was lost or left over, or a fault was not named.
"""

from __future__ import annotations

import argparse
import datetime
import importlib
import os
import subprocess
import sys
from pathlib import Path

import msgspec

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.faults.recorded import PARTS, RECORDED, Part, read_recorded
from tests.faults.matrix import Row, Tried, rows_of

# The programs that are tried import what tests play there.
os.environ["PYTHONPATH"] = os.pathsep.join(
    filter(None, [sys.path[0], os.environ.get("PYTHONPATH")])
)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", action="append", choices=list(PARTS))
    parser.add_argument("--trials", type=int, default=1000, help="of signals at random moments")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args(arguments)
    found = read_recorded()
    sound = True
    for name in asked.part or PARTS:
        found[name] = part = _try(name, trials=asked.trials, seed=asked.seed)
        sound = sound and bool(part.rows) and all(row.is_sound for row in part.rows)
        if asked.write:
            ordered = {part: found[part] for part in PARTS if part in found}
            RECORDED.write_bytes(msgspec.json.format(msgspec.json.encode(ordered)) + b"\n")
    return 0 if sound else 1


def _try(name: str, *, trials: int, seed: int) -> Part:
    """Try what a part has, and print each trial that went wrong, and then each fault."""
    print(f"{name}:", flush=True)
    commit = _commit()  # not later: it may move on meanwhile
    module = importlib.import_module(f"benchmarks.faults.{name}")
    tried: list[Tried] = []
    for trial in module.trials(trials=trials, seed=seed):
        tried.append(trial)
        if not trial.survived or trial.lost or trial.leaked:
            print(f"  NOT SOUND: {trial}", flush=True)
    rows = tuple(rows_of(tried))
    for row in rows:
        print(f"  {_line(row)}", flush=True)
    return Part(date=_today(), commit=commit, rows=rows)


def _today() -> str:
    return datetime.datetime.now(datetime.timezone.utc).date().isoformat()


def _commit() -> str:
    command = ["git", "rev-parse", "--short=8", "HEAD"]
    done = subprocess.run(command, cwd=RECORDED.parent, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def _line(row: Row) -> str:
    slowest = "" if row.slowest_s is None else f", noticed within {row.slowest_s:.1f} s"
    return (
        f"{row.fault}: tried {row.tried}, survived {row.survived}, lost {row.lost},"
        f" leaked {row.leaked}{slowest}"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
