"""Training of a case on real ranks, and of the same model in one plain loop, to compare them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch

from ddp_perf.config.rules import check_options
from ddp_perf.core.case import Case
from ddp_perf.core.launch import LaunchFailure, LaunchRequest, LaunchResult, Structure
from ddp_perf.launch.launcher import Launcher
from ddp_perf.system.gpu.gpus import find_gpus
from ddp_perf.system.lease import gpu_lease
from tests.builders import make_cases, make_suite
from tests.correctness.workloads.models import (
    GLOBAL_BATCH,
    build_model,
    global_batch,
    loss_of,
    optimizer_of,
)

ROOT = Path(__file__).parents[2]
STEPS = 4

FOUR = pytest.param(4, marks=pytest.mark.slow)  # ranks: two of them show most of what four do

FSDP = pytest.param("fsdp", marks=pytest.mark.slow)  # where DDP shows most of it

Tensors = dict[str, torch.Tensor]

# The largest relative error, in norm, of a step's gradients or parameters against float64.
TOLERANCES = {"float64": 1e-14, "float32": 2e-6}
UNIT_ROUNDOFF = {"fp16": 2**-11, "tf32": 2**-11, "bf16": 2**-8}
HOOK_ROUNDINGS = 4  # units: gradients are rounded once, and once for each sum
LAYER_ROUNDINGS = 16  # units: so are activations, layer by layer; seen: up to 7


@dataclass(frozen=True, kw_only=True)
class RankRecord:
    """The computations of one rank, step by step, before and after each update."""

    losses: list[float]  # of each micro-step
    gradients: list[Tensors]
    parameters: list[Tensors]
    buffers: list[Tensors]
    shards: dict[str, tuple[int, ...]]  # shape of this rank's part of each sharded parameter
    devices: set[str]  # of the parameters: "cpu", "cuda"
    compiled_graphs: int  # made by torch.compile


@dataclass(frozen=True, kw_only=True)
class Trained:
    """A case and the records of the ranks that trained it."""

    case: Case
    result: LaunchResult
    ranks: list[RankRecord]

    @property
    def structure(self) -> Structure:
        return self.result.ranks[0].structure

    @property
    def compiled_graphs(self) -> int:
        return min(rank.compiled_graphs for rank in self.ranks)

    @property
    def collectives(self) -> list[tuple[str, str, int]]:
        """The kind, format and bytes of each collective of a step, in order."""
        return [(c.kind, c.dtype, c.bytes) for c in self.structure.collectives]


def make_training_case(
    workload: str,
    world_size: int,
    model: dict[str, Any],
    *,
    ranks_per_node: int | None = None,
    **suite: Any,
) -> Case:
    """Return a case of the options in ``suite``, which must pass the checks of collection.

    Several nodes are all on this machine.
    """
    fields = {
        "suite": "correctness",
        "workload": f"tests.correctness.workloads.{workload}",
        "model": model,
        "world_sizes": [world_size],
        "batch_sizes": [GLOBAL_BATCH // world_size],
        "denominator": "ddp-1",
        "steps": STEPS,
        "start_deadline_s": 300,  # torch.compile on a busy core
        **suite,
    }
    check_options(make_suite(**fields))
    (case,) = make_cases(ranks_per_node=ranks_per_node, **fields)
    return case


def launch(
    launcher: Launcher, case: Case, *, shared_gpu: bool = False
) -> LaunchResult | LaunchFailure:
    """Launch a case on GPUs that no other test uses; cores may be shared, as nothing is timed.

    With ``shared_gpu`` all ranks run on one GPU.
    """
    wanted = 0 if case.tier == "cpu" else 1 if shared_gpu else case.world_size
    with gpu_lease(wanted, gpus=find_gpus().gpus, patience_s=600, on_wait=print) as gpus:
        if gpus:
            env = {**case.env, "CUDA_VISIBLE_DEVICES": ",".join(gpu.uuid for gpu in gpus)}
            case = msgspec.structs.replace(case, env=env)
        return launcher.launch(
            LaunchRequest(case=case, round=0, import_paths=(str(ROOT),), shared_gpu=shared_gpu)
        )


def train(launcher: Launcher, case: Case, directory: Path, *, shared_gpu: bool = False) -> Trained:
    """Launch a case of the ``recorded`` workload that writes to ``directory``."""
    result = launch(launcher, case, shared_gpu=shared_gpu)
    assert isinstance(result, LaunchResult), f"{result}\n{result.output}\n{result.traceback}"
    records = [torch.load(directory / f"rank{rank}") for rank in range(case.world_size)]
    return Trained(case=case, result=result, ranks=[RankRecord(**record) for record in records])


def reference(model: str, *, steps: int = STEPS, micro_steps: int = 1) -> RankRecord:
    """Train the plain module in one process, in float64, on the batch of all micro-steps."""
    module = build_model(model, "float64")
    optimizer = optimizer_of(module.parameters())
    record = RankRecord(
        losses=[],
        gradients=[],
        parameters=[],
        buffers=[],
        shards={},
        devices={"cpu"},
        compiled_graphs=0,
    )
    for step in range(steps):
        parts = [global_batch(step * micro_steps + m, "float64") for m in range(micro_steps)]
        loss = loss_of(module, tuple(torch.cat(tensors) for tensors in zip(*parts, strict=True)))
        optimizer.zero_grad()
        loss.backward()
        named = dict(module.named_parameters())
        record.losses.append(loss.item())
        record.gradients.append({n: p.grad.clone() for n, p in named.items() if p.grad is not None})
        optimizer.step()
        record.parameters.append({n: p.detach().clone() for n, p in named.items()})
    return record


def relative_error(actual: Tensors, expected: Tensors) -> float:
    """Return ‖actual − expected‖ ÷ ‖expected‖, over all tensors together."""
    assert actual.keys() == expected.keys()
    pairs = [(actual[name].double(), expected[name].double()) for name in expected]
    difference = sum((a - e).square().sum().item() for a, e in pairs)
    return math.sqrt(difference / sum(e.square().sum().item() for _, e in pairs))


def assert_equals_reference(trained: Trained, expected: RankRecord, tolerance: float) -> None:
    """Assert that gradients and parameters of every rank and step are within ``tolerance``."""
    for record in trained.ranks:
        assert len(record.gradients) == len(expected.gradients)
        for actual, wanted in zip(record.gradients, expected.gradients, strict=True):
            assert relative_error(actual, wanted) < tolerance
        for actual, wanted in zip(record.parameters, expected.parameters, strict=True):
            assert relative_error(actual, wanted) < tolerance


def assert_ranks_have_the_same_bits(trained: Trained, step: int = -1) -> None:
    first, *others = (record.parameters[step] for record in trained.ranks)
    for other in others:
        assert all(torch.equal(first[name], other[name]) for name in first)
