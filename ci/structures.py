"""Write baselines/structure/ from real launches over gloo, or check that it is current.

The cases of one rank and of two are launched on CPUs with one sample a rank: what a step does
depends neither on the batch nor on the device. The full-size models take minutes. Structures of
more ranks, which sessions stored, stay as long as their cases do the same work.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from ddp_perf.baselines.store import BaselineStore
from ddp_perf.config.loading import find_suites, load_cases
from ddp_perf.config.overrides import Overrides
from ddp_perf.core.baseline import CaseStructure
from ddp_perf.core.case import Case, Schedule
from ddp_perf.core.launch import LaunchFailure, LaunchRequest, Structure
from ddp_perf.core.scaling_key import work_without
from ddp_perf.errors import DdpPerfError
from ddp_perf.launch.forkserver import ForkserverLauncher

ROOT = Path(__file__).parents[1]
MOST_RANKS = 2
PATIENT = Schedule(steps=1, warmup=0, launches=1, start_deadline_s=600, step_deadline_s=600)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--check", action="store_true", help="write nothing; exit with 1 if a file differs"
    )
    parser.add_argument(
        "suites", nargs="*", type=Path, metavar="SUITE.yaml", help="default: all that ship"
    )
    arguments = parser.parse_args()
    stale = []
    try:
        with contextlib.closing(ForkserverLauncher()) as launcher:
            for path in arguments.suites or _shipped():
                stale.append(_is_stale(path, launcher, check=arguments.check))
    except DdpPerfError as error:
        parser.error(str(error))
    return int(arguments.check and any(stale))


def _is_stale(path: Path, launcher: ForkserverLauncher, *, check: bool) -> bool:
    """Launch the cases of a suite, and replace its file if it differs and ``check`` is False."""
    cases = [case for case in load_cases([path], Overrides()) if case.trains]
    if not cases:
        return False  # collectives by themselves
    store, suite = BaselineStore(ROOT / "baselines"), cases[0].suite
    stored = store.load_structures(suite)
    found = {**_of_more_ranks(cases, stored), **_measured(cases, launcher)}
    if found == stored:
        return False
    if not check:
        store.update_structures(suite, lambda _: found)
    file = store.structure_path(suite).relative_to(ROOT)
    print(f"{file}: {'differs' if check else 'written'}", flush=True)
    return True


def _shipped() -> list[Path]:
    configs = ROOT / "bench_configs"
    return [*find_suites(configs / "cpu"), *find_suites(configs)]


def _of_more_ranks(
    cases: Sequence[Case], stored: Mapping[str, CaseStructure]
) -> dict[str, CaseStructure]:
    """Return the stored structures of the cases that are not launched here."""
    return {
        case.id: stored[case.id]
        for case in cases
        if case.world_size > MOST_RANKS
        and case.id in stored
        and stored[case.id].work == case.work()
    }


def _measured(cases: Sequence[Case], launcher: ForkserverLauncher) -> dict[str, CaseStructure]:
    by_step: dict[str, Structure] = {}
    found = {}
    for case in cases:
        if case.world_size > MOST_RANKS:
            continue
        if _step(case) not in by_step:
            by_step[_step(case)] = _launched(case, launcher)
        found[case.id] = CaseStructure(work=case.work(), structure=by_step[_step(case)])
    return found


def _step(case: Case) -> str:
    """Return a key of the step. Cases that differ only in their batch have the same one."""
    return repr(work_without(case.work(), {"batch_size", "global_batch"}))


def _launched(case: Case, launcher: ForkserverLauncher) -> Structure:
    small = msgspec.structs.replace(case, tier="cpu", batch_size=1, schedule=PATIENT)
    outcome = launcher.launch(LaunchRequest(case=small, round=0))
    if isinstance(outcome, LaunchFailure):
        sys.exit(f"{outcome}\n{outcome.traceback}{outcome.output}")
    structure = outcome.ranks[0].structure
    assert structure is not None  # a case that trains has one
    return structure


if __name__ == "__main__":
    sys.exit(main())
