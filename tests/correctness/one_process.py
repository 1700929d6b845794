"""The parts of a shipped case's ranks, for a process that trains on the batches of all of them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import msgspec
import torch

from ddp_perf.core.case import Case, with_training
from ddp_perf.strategies.strategy import fill_model
from ddp_perf.workloads.workload import Batch, BuildContext, Workload, build_workload


def comparable(case: Case) -> Case:
    """Return the case without dropout, and with a data loader that has no processes of its own."""
    options = case.training
    model = {**options.model, **({"dropout": 0.0} if "dropout" in options.model else {})}
    data = options.data
    if data.num_workers is not None:
        data = msgspec.structs.replace(data, num_workers=0)
    return with_training(case, model=model, data=data)


def parts_of_ranks(case: Case) -> list[Workload]:
    """Return the workload of each rank, with the initial parameters that the ranks have."""
    assert case.batch_size is not None  # the case trains
    parts = []
    for rank in range(case.world_size):
        torch.manual_seed(0)  # as in a rank
        context = BuildContext(
            device=torch.device("cpu"),
            batch_size=case.batch_size,
            rank=rank,
            world_size=case.world_size,
            data=case.training.data,
        )
        parts.append(allocated(build_workload(case.workload, context, case.training.model)))
    return parts


def allocated(built: Workload) -> Workload:
    """Return the workload; a model on the meta device has the parameters of a rank on a CPU."""
    if built.fill is not None:
        cpu = torch.device("cpu")
        fill_model(built.model, built.fill, cpu, kept_on=cpu)
    return built


def batches_of(part: Workload) -> Iterator[Batch]:
    """Return the batches of a rank, one after another."""
    batch = part.batch
    return itertools.repeat(batch) if isinstance(batch, tuple) else batch
