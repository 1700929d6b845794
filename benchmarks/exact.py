"""Find which figures of a step's work are exact: equal in all runs, and between torch versions.

``python benchmarks/exact.py [--python PYTHON]… [--runs 10] CASE…`` counts each case
with each interpreter, every time in a fresh rank, and prints a table. Each interpreter needs the
project's dependencies. A case is FILE:RANKS:PART, where PART is some of its id.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
CASES = (  # file of bench_configs, number of ranks, part of the case's id
    "cpu_quick.yaml:2:ddp",
    "cpu/fsdp_scaling.yaml:2:fsdp",
    "cpu/text_transformer_agnews.yaml:2:ddp",
    "cpu/comm_optimizations.yaml:2:fp16",
)

_COUNT = """
import contextlib, sys
from pathlib import Path
import msgspec, torch
from ddp_perf.core.case import with_training
from ddp_perf.config.loading import load_cases
from ddp_perf.config.loading import Overrides
from ddp_perf.core.work import CountRequest, StepWork
from ddp_perf.launch.server_launcher import ServerLauncher

def chosen(file, ranks, part):
    path = Path(root) / "bench_configs" / file
    cases = load_cases([path], Overrides(world_sizes=(int(ranks),)))
    case = next(each for each in cases if part in each.id and each.world_size == int(ranks))
    return with_training(case, compile=compiled == "compile")

if __name__ == "__main__":
    root, compiled, runs, *names = sys.argv[1:]
    with contextlib.closing(ServerLauncher()) as launcher:
        for name in names:
            case = chosen(*name.split(":"))
            for _ in range(int(runs)):
                work = launcher.count(CountRequest(case=case))
                if not isinstance(work, StepWork):
                    sys.exit(str(work))
                line = msgspec.json.encode([str(torch.__version__), case.id, work])
                print(line.decode(), flush=True)
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cases", nargs="*", default=CASES, metavar="FILE:RANKS:PART")
    parser.add_argument("--python", action="append", metavar="PYTHON", help="an interpreter")
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--compile", action="store_true", help="count the cases with torch.compile")
    options = parser.parse_args()
    runs: dict[str, dict[str, list[dict[str, str]]]] = {}
    failed = False
    for python in options.python or [sys.executable]:
        counted = "compile" if options.compile else "eager"
        done = subprocess.run(
            [python, "-c", _COUNT, str(ROOT), counted, str(options.runs), *options.cases],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        for version, case, work in map(json.loads, done.stdout.splitlines()):
            runs.setdefault(case, {}).setdefault(version, []).append(dict(_figures(work)))
        if done.returncode:
            print(f"{python}: {done.stderr.strip()[-500:]}", file=sys.stderr, flush=True)
            failed = True
    for case, of_case in runs.items():
        print("\n".join(_table(case, of_case)), flush=True)
    return int(failed)


def _figures(work: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield each figure and its value as text, without numbers of sites."""
    sites = [(site["file"], site["function"], site["text"]) for site in work["sites"]]
    operations = work["operations"]
    for field in ("count", "read", "written", "flops"):
        totals: dict[str, int] = {}
        for one in operations:
            key = f"{one['phase']} {one['name']} {one['dtype']}"
            totals[key] = totals.get(key, 0) + one.get(field, 0)
        yield f"operations: {field}", _text({key: n for key, n in totals.items() if n})
    yield "operations: sites", _text(sorted([*sites[o["site"]], o["name"]] for o in operations))
    collectives = [{k: v for k, v in one.items() if k != "site"} for one in work["collectives"]]
    yield (
        "collectives: kind, type, bytes, group, order",
        _text(
            [{k: v for k, v in one.items() if k != "flops_after"} for one in collectives],
        ),
    )
    yield "collectives: FLOPs after", _text([one["flops_after"] for one in collectives])
    yield "structure", _text(work["structure"])
    for field, value in work["memory"].items():
        yield f"memory: {field}", _text(value)
    yield (
        "calls of the user's functions",
        _text(sorted([*sites[c["site"]], c["count"]] for c in work["calls"])),
    )
    yield "autograd nodes", _text(work["autograd_nodes"])
    if work["compilation"] is not None:
        compilation = work["compilation"]
        yield "compile: graphs", _text(compilation["graphs"])
        for kind in ("breaks", "recompilations"):
            reasons = sorted([one["reason"], *sites[one["site"]]] for one in compilation[kind])
            yield f"compile: {kind}", _text(reasons)
    for field, value in work["reported"].items():
        yield f"reported: {field}", _text(value)


def _text(value: object) -> str:
    return json.dumps(value, sort_keys=True)


def _table(case: str, runs: Mapping[str, list[dict[str, str]]]) -> Iterator[str]:
    yield f"{case}: " + ", ".join(f"{len(found)} runs of {v}" for v, found in runs.items())
    for figure in dict.fromkeys(name for found in runs.values() for name in found[0]):
        values = {v: {one.get(figure) for one in found} for v, found in runs.items()}
        inexact = [f"{v}: {len(each)} values" for v, each in values.items() if len(each) > 1]
        exact = f"differs between runs ({', '.join(inexact)})" if inexact else "exact"
        first, *others = values
        other = [version for version in others if values[version] != values[first]]
        versions = f"{', '.join(other)} differ from {first}" if other else "equal"
        more = f"   between versions: {versions}" if len(runs) > 1 else ""
        yield f"  {figure:46} {exact}{more}"


if __name__ == "__main__":
    sys.exit(main())
