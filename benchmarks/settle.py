"""Measure what a session finds of an edit, how it names it, and how long that takes.

    python benchmarks/settle.py [--only NAME …] [--baselines 1,5] [--unchanged 20]
        [--neutral 0] [--budget 3m] [--json FILE] [--directory DIRECTORY]
        [-- OPTION OF PYTEST …]

It makes a git project with a small training, stores one session of it, or five that lie a day
apart, edits a copy, and runs the performance tests once with ``--ddp-settle``. Unchanged sessions
have other commits that change documents alone. Neutral ones, which are not run unless they are
asked for, change a docstring in a file that each rank imports, so that both codes are launched.

The sessions run in random order. ``--json`` keeps each as it ends, and a second call goes on from
there; with all of them it prints the table. ``--directory`` keeps the projects with their stored
sessions, so that later calls are judged by the same ones. ``--budget 0`` measures the gate without
its second stage. Each session takes one minute to some minutes of a machine that must be quiet.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.settle_edits import BY_NAME
from benchmarks.settle_project import SettleProject
from benchmarks.settle_score import Kind, Run, report, with_results
from ddp_perf.system.files import replace_file

_SEED = 1  # of the order of the sessions
_OUTPUT = 4000  # characters of the output that are kept if there are no results


class Planned(NamedTuple):
    """A session that is to run."""

    name: str
    kind: Kind
    stored: int


def main() -> int:
    given = _arguments()
    planned = plan(
        given.only or list(BY_NAME),
        given.baselines,
        unchanged=0 if given.only else given.unchanged,
        neutral=0 if given.only else given.neutral,
    )
    runs = _read(given.json)
    with contextlib.ExitStack() as stack:
        directory = given.directory or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        for left in planned:
            if (left.name, left.stored) in {run.key for run in runs}:
                continue
            runs.append(_run(left, directory.resolve(), given.budget, given.options))
            _write(given.json, runs)
            print(f"{len(runs)}: {left.name}, {left.stored} stored", file=sys.stderr, flush=True)
    print("\n".join(report(runs)))
    return 0


def plan(
    names: Sequence[str], baselines: Sequence[int], *, unchanged: int, neutral: int
) -> list[Planned]:
    """Return the sessions in random order; the others are divided over the stored sessions."""
    planned = [Planned(name, "edit", stored) for name in names for stored in baselines]
    others: tuple[tuple[Kind, int], ...] = (("unchanged", unchanged), ("neutral", neutral))
    for kind, number in others:
        planned += [
            Planned(f"{kind}-{place + 1}", kind, baselines[place % len(baselines)])
            for place in range(number)
        ]
    random.Random(_SEED).shuffle(planned)
    return planned


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=list(BY_NAME), metavar="NAME", default=[])
    parser.add_argument("--baselines", type=_numbers, default=[1, 5], help="stored sessions")
    parser.add_argument("--unchanged", type=int, default=20)
    parser.add_argument("--neutral", type=int, default=0)
    parser.add_argument("--budget", default="3m", help="of --ddp-settle; 0: no second stage")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--directory", type=Path)
    parser.add_argument("options", nargs="*", help="of each pytest session")
    return parser.parse_args()


def _numbers(text: str) -> list[int]:
    return [int(one) for one in text.split(",")]


def _run(planned: Planned, directory: Path, budget: str, more: Sequence[str]) -> Run:
    """Run one session in a copy of the project with its stored sessions."""
    stored = SettleProject(directory / f"of-{planned.stored}", more).prepared(planned.stored)
    with tempfile.TemporaryDirectory() as scratch:
        project = stored.copied(Path(scratch))
        commit, lines = _changed(project, planned)
        options = ["--save-baseline=append", *(["--ddp-settle", budget] if budget != "0" else [])]
        began = time.monotonic()
        ended = project.session(*options)
    run = Run(
        name=planned.name,
        kind=planned.kind,
        stored=planned.stored,
        commit=commit,
        lines=lines,
        exit_code=ended.exit_code,
        seconds=time.monotonic() - began,
    )
    if ended.results is None:
        return msgspec.structs.replace(run, error=ended.output[-_OUTPUT:])
    return with_results(run, ended.results)


def _changed(project: SettleProject, planned: Planned) -> tuple[str | None, tuple[int, ...]]:
    """Change the project; return the commit of the edit, if it has one, and its marked lines."""
    if planned.kind == "edit":
        edit = BY_NAME[planned.name]
        commit = project.make(edit)
        return commit, project.marked_lines(edit)
    project.go_on()
    if planned.kind == "neutral":
        project.touch()
    return None, ()


def _read(path: Path | None) -> list[Run]:
    if path is None or not path.exists():
        return []
    return list(msgspec.json.decode(path.read_bytes(), type=tuple[Run, ...]))


def _write(path: Path | None, runs: Sequence[Run]) -> None:
    if path is not None:
        replace_file(path, msgspec.json.encode(runs))


if __name__ == "__main__":
    sys.exit(main())
