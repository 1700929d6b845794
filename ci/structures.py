"""Write baselines/structure/ from real launches over gloo, or check that it is current (--check).

    python ci/structures.py [--check] [SUITE.yaml …]        default: every suite that ships

The cases of one rank and of two are launched on CPUs with one sample a rank: what a step does
depends neither on the batch nor on the device. The full-size models take minutes.
"""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path

import msgspec

from ddp_perf.baselines.format import format_json
from ddp_perf.baselines.store import BaselineStore
from ddp_perf.config.loading import find_suites, load_cases
from ddp_perf.config.overrides import Overrides
from ddp_perf.core.baseline import CaseStructure, StructureBaseline
from ddp_perf.core.case import Case, Schedule
from ddp_perf.core.launch import LaunchFailure, LaunchRequest, Structure
from ddp_perf.launch.forkserver import ForkserverLauncher

ROOT = Path(__file__).parents[1]
PATIENT = Schedule(steps=1, warmup=0, launches=1, start_deadline_s=600, step_deadline_s=600)


def main(check: bool, paths: list[Path]) -> int:
    store, stale = BaselineStore(ROOT / "baselines"), []
    with contextlib.closing(ForkserverLauncher()) as launcher:
        for path in paths or _shipped():
            cases = [c for c in load_cases([path], Overrides()) if c.trains and c.world_size <= 2]
            if not cases:
                continue  # collectives by themselves
            found = _structures(cases, launcher)
            file = store.structure_path(found.suite)
            text = format_json(msgspec.to_builtins(found))
            if file.exists() and file.read_text(encoding="utf-8") == text:
                continue
            stale.append(file.name)
            print(f"{file.relative_to(ROOT)}: {'differs' if check else 'written'}", flush=True)
            if not check:
                file.parent.mkdir(exist_ok=True)
                file.write_text(text, encoding="utf-8")
    return int(check and bool(stale))


def _shipped() -> list[Path]:
    configs = ROOT / "bench_configs"
    return [*find_suites(configs / "cpu"), *find_suites(configs)]


def _structures(cases: list[Case], launcher: ForkserverLauncher) -> StructureBaseline:
    measured: dict[str, Structure] = {}
    for case in cases:
        if _step(case) not in measured:
            measured[_step(case)] = _launched(case, launcher)
    return StructureBaseline(
        suite=cases[0].suite,
        cases={
            case.id: CaseStructure(work=case.work(), structure=measured[_step(case)])
            for case in cases
        },
    )


def _step(case: Case) -> str:
    """Return a key of the step. Cases that differ only in their batch have the same one."""
    return repr({name: value for name, value in case.work().items() if name != "batch_size"})


def _launched(case: Case, launcher: ForkserverLauncher) -> Structure:
    small = msgspec.structs.replace(case, tier="cpu", batch_size=1, schedule=PATIENT)
    outcome = launcher.launch(LaunchRequest(case=small, round=0))
    if isinstance(outcome, LaunchFailure):
        sys.exit(f"{outcome}\n{outcome.traceback}{outcome.output}")
    structure = outcome.ranks[0].structure
    assert structure is not None  # a case that trains has one
    return structure


if __name__ == "__main__":
    arguments = [argument for argument in sys.argv[1:] if argument != "--check"]
    sys.exit(main("--check" in sys.argv[1:], [Path(argument) for argument in arguments]))
