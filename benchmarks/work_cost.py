"""Compare the modelled step of the work gate with published step times.

    python benchmarks/work_cost.py

Each row of the baselines' published tables that has a workload of a shipped suite, on a GPU whose
peaks are known, is counted at its own batch, precision and number of ranks, on this machine's CPU.
Modelled ÷ published is printed; nothing is fitted, so every row is held out.
"""

from __future__ import annotations

import contextlib
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, cast

sys.path.insert(0, str(Path(__file__).parents[1]))

import msgspec

from ddp_perf.baselines.store import BaselineStore
from ddp_perf.config.loading import Overrides, load_cases
from ddp_perf.core.case import Case
from ddp_perf.core.launch import LaunchFailure
from ddp_perf.core.published import PublishedRow, PublishedTable
from ddp_perf.core.strategy import Precision
from ddp_perf.core.work import CountRequest, StepWork
from ddp_perf.launch.server_launcher import ServerLauncher
from ddp_perf.work.cost import CostModel, model_of
from ddp_perf.work.values import CountedCase

ROOT = Path(__file__).parents[1]
SUITES = {
    "mlp": "mlp_scaling.yaml",
    "resnet50": "resnet50_scaling.yaml",
    "distilbert": "distilbert_agnews.yaml",
}


class Published(NamedTuple):
    """A published step of a case of a shipped suite."""

    accelerator: str
    table: PublishedTable
    case: Case
    step_s: float


def main() -> None:
    ratios: dict[str, list[float]] = {}
    print("| GPU | table | ranks | batch | published ms | modelled ms | ratio | of the model |")
    print("|---|---|--:|--:|--:|--:|--:|---|")
    with contextlib.closing(ServerLauncher()) as launcher:
        for one in published_steps(BaselineStore(ROOT / "baselines")):
            model = model_of(CountedCase(case=one.case), one.accelerator)
            assert model is not None  # it is one of the published steps
            work = launcher.count(CountRequest(case=one.case))
            if isinstance(work, LaunchFailure):
                raise SystemExit(f"{one.case.id}: {work.detail}")
            modelled_s = model.step(work).seconds
            ratio = modelled_s / one.step_s
            stated = "inferred" if one.table.inferred else "stated"
            ratios.setdefault(f"{stated} work", []).append(ratio)
            print(
                f"| {one.accelerator} | {one.table.name} | {one.case.world_size} |"
                f" {one.case.batch_size} | {1e3 * one.step_s:.1f} | {1e3 * modelled_s:.1f} |"
                f" {ratio:.2f} | {_parts(model, work)} |",
                flush=True,
            )
    for name, found in ratios.items():
        print(
            f"{name}: {len(found)} rows, ratio {min(found):.2f} to {max(found):.2f}, median"
            f" {statistics.median(found):.2f}"
        )


def published_steps(store: BaselineStore) -> Iterator[Published]:
    """Yield the published steps of training that a shipped suite describes."""
    for accelerator in store.accelerators():
        for table in store.load(accelerator).published:
            file = SUITES.get(str(table.work.get("workload")))
            for row in table.rows if file else ():
                step_s = _step_s(row)
                if row.batch_size is None or step_s is None:
                    continue
                case = _case(ROOT / "bench_configs" / str(file), table, row)
                if model_of(CountedCase(case=case), accelerator) is not None:
                    yield Published(accelerator, table, case, step_s)


def _case(file: Path, table: PublishedTable, row: PublishedRow) -> Case:
    assert row.batch_size is not None
    overrides = Overrides(world_sizes=(row.world_size,), batch_sizes=(row.batch_size,))
    found = [case for case in load_cases([file], overrides) if case.world_size == row.world_size]
    precision = cast(Precision, table.work.get("precision", found[0].precision))
    return msgspec.structs.replace(found[0], precision=precision)


def _step_s(row: PublishedRow) -> float | None:
    """Return the seconds of a step, as stated or from the throughput, or None."""
    if row.step_ms is not None:
        return row.step_ms / 1e3
    if row.throughput is None or row.batch_size is None:
        return None
    return row.world_size * row.batch_size / row.throughput


def _parts(model: CostModel, work: StepWork) -> str:
    """Return the parts of a modelled step: operations that compute, others, and collectives."""
    each = [(one, model.operation(one, work.sites[one.site]).seconds) for one in work.operations]
    computing = sum(seconds for one, seconds in each if one.flops)
    others = sum(seconds for one, seconds in each if not one.flops)
    sent = sum(model.collective(one).seconds for one in work.collectives)
    parts = {"products": computing, "other operations": others, "collectives": sent}
    return ", ".join(f"{name} {1e3 * seconds:.1f}" for name, seconds in parts.items())


if __name__ == "__main__":
    main()
