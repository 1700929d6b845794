"""Write all that is counted of the suites that ship, or check that it is current.

The work of a step of each case, below baselines/work/; and what of the structures no other one
determines, in baselines/structure/, at the suite's numbers of ranks and each power of two to 256.
One rank of a case is counted alone, on a CPU, also for a suite of tier gpu. Nothing is computed.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import importlib.metadata
import multiprocessing
import os
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import msgspec

from ddp_perf.baselines.save import determining_work, known_structure
from ddp_perf.baselines.work import StoredWork, WorkStore, canonical
from ddp_perf.config.loading import Overrides, find_suites, load_cases
from ddp_perf.core.case import Case
from ddp_perf.core.launch import LaunchFailure
from ddp_perf.core.work import CountRequest, StepWork
from ddp_perf.errors import DdpPerfError
from ddp_perf.launch.server_launcher import ServerLauncher

ROOT = Path(__file__).parents[1]
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
EACH = (1, 2)  # of these ranks every case of a suite is in its file, determined or not


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
    suites = arguments.suites or _shipped()
    cores = len(os.sched_getaffinity(0))  # ranks are started from the main thread of a process
    try:
        with ProcessPoolExecutor(cores, multiprocessing.get_context("spawn")) as pool:
            for found in pool.map(functools.partial(_stale, check=arguments.check), suites):
                stale += found
                for file in found:
                    print(f"{file}: {'differs' if arguments.check else 'written'}", flush=True)
    except DdpPerfError as error:
        parser.error(str(error))
    return int(arguments.check and bool(stale))


def _shipped() -> list[Path]:
    configs = ROOT / "bench_configs"
    return [*find_suites(configs), *find_suites(configs / "cpu")]  # what takes longest comes first


def _stale(path: Path, *, check: bool) -> list[Path]:
    """Count a suite, and return its files that differ. Without ``check`` they are replaced."""
    own = [case for case in load_cases([path], Overrides()) if case.trains]
    if not own:
        return []  # collectives by themselves
    suite, torch = own[0].suite, importlib.metadata.version("torch")
    stating = _stating(own, _other_sizes(path, own))
    counted = _counted([*own, *(case for case in stating if case not in own)])
    structures = {
        case.id: StoredWork(
            options=case.work(), step=StepWork(structure=counted[case.id].structure)
        )
        for case in stating
    }
    _prove(own, structures, counted)
    works = {
        case.id: StoredWork(options=case.work(), step=canonical(counted[case.id])) for case in own
    }
    stale, store = [], WorkStore(ROOT / "baselines")
    for version, cases in ((None, structures), (torch, works)):
        if cases != store.load(suite, version).cases:
            stale.append(store.path(suite, version).relative_to(ROOT))
        if not check:
            change = functools.partial(msgspec.structs.replace, cases=cases)
            store.update(suite, version, change)
    return stale


def _other_sizes(path: Path, own: Sequence[Case]) -> list[Case]:
    """Return the cases at the other sizes that divide a batch which all ranks share."""
    batches = [case.global_batch for case in own if case.global_batch is not None]
    taken = {case.world_size for case in own}
    sizes = [size for size in SIZES if not any(batch % size for batch in batches)]
    others = tuple(size for size in sizes if size not in taken)
    return load_cases([path], Overrides(world_sizes=others)) if others else []


def _stating(own: Sequence[Case], others: Sequence[Case]) -> list[Case]:
    """Return the cases whose structures the file states: one with fewer ranks determines others."""
    stating = []
    determined = []
    for case in sorted([*own, *others], key=lambda case: case.world_size):
        determining = determining_work(case.work())
        if determining not in determined or case.world_size in EACH:
            stating.append(case)
            determined.append(determining)
    return stating


def _prove(
    own: Sequence[Case], structures: Mapping[str, StoredWork], counted: Mapping[str, StepWork]
) -> None:
    """Exit if a structure that the file leaves out is not the one that it determines."""
    for case in own:
        if known_structure(case, structures) != counted[case.id].structure:
            sys.exit(f"{case.id}: determining_work leaves out what its structure depends on")


def _counted(cases: Sequence[Case]) -> dict[str, StepWork]:
    with contextlib.closing(ServerLauncher()) as launcher:
        return {case.id: _count(case, launcher) for case in cases}


def _count(case: Case, launcher: ServerLauncher) -> StepWork:
    outcome = launcher.count(CountRequest(case=case))
    if isinstance(outcome, LaunchFailure):
        sys.exit(f"{outcome}\n{outcome.traceback}{outcome.output}")
    return outcome


if __name__ == "__main__":
    sys.exit(main())
