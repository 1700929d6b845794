"""Every suite that ships trains on N ranks as one process does on the batches of all of them.

The launched ranks are those of the suite: its workload and model, its strategy, options and hooks.
Two things are changed. Dropout is off, because each rank draws masks of its own. And hooks with a
start step begin at once, because only a few steps are compared.
"""

from __future__ import annotations

import itertools
from pathlib import Path

import msgspec
import pytest
import torch
from torch import nn

from ddp_perf.config.loading import load_cases
from ddp_perf.config.overrides import Overrides
from ddp_perf.core.case import Schedule
from ddp_perf.core.launch import LaunchRequest, LaunchResult
from ddp_perf.workloads.registry import build_workload
from ddp_perf.workloads.workload import BuildContext

ROOT = Path(__file__).parents[2]
STEPS = 8
TOLERANCE = 1e-5  # of the first loss, in float32; seen: 3e-7
# Hooks that leave out a part of the gradients until later, and the largest change of the loss that
# they may have within the steps; seen: …
LOSSY = {"topk": 0.01, "powersgd": 0.01, "post_local_sgd": 0.01}
SUITES = [*sorted((ROOT / "bench_configs" / "cpu").glob("*.yaml")), ROOT / "bench_configs/cpu_quick.yaml"]
SHORT = Schedule(steps=STEPS, warmup=STEPS - 1, launches=1, start_deadline_s=300, step_deadline_s=60)


def shipped():
    """Yield the cases of several ranks of all suites of the CPU tier, the smallest batch of each."""
    seen = set()
    for case in load_cases(SUITES, Overrides()):
        work = {name: value for name, value in case.work().items() if name != "batch_size"}
        key = case.suite, repr(work)
        if case.trains and case.world_size > 1 and key not in seen:
            seen.add(key)
            yield pytest.param(_comparable(case), id=f"{case.suite}-{case.id}")


def _comparable(case):
    model = {**case.model, "dropout": 0.0} if "dropout" in case.model else case.model
    return msgspec.structs.replace(case, model=model, schedule=SHORT)


def _parts(case):
    """Return the workload of each rank, with the initial parameters that the ranks have."""
    parts = []
    for rank in range(case.world_size):
        torch.manual_seed(0)  # as in a rank
        context = BuildContext(
            device=torch.device("cpu"),
            batch_size=case.batch_size,
            rank=rank,
            world_size=case.world_size,
            data=case.data,
        )
        parts.append(build_workload(case.workload, context, case.model))
    return parts


def _batches(part):
    batch = part.batch
    return itertools.repeat(batch) if isinstance(batch, tuple) else batch


def one_process(case, *, whole=True):
    """Return the losses of one process, by step, on the concatenated batches of all ranks.

    With ``whole=False`` the model computes the samples of each rank by themselves.
    """
    parts = _parts(case)
    model, loss = parts[0].model, parts[0].loss
    optimizer = parts[0].optimizer(model.parameters())
    losses = {}
    batches = [_batches(part) for part in parts]
    for step in range(1, STEPS + 1):
        optimizer.zero_grad()
        total = 0.0
        for _ in range(case.gradient_accumulation):
            each = [next(of_rank) for of_rank in batches]
            if whole:
                value = loss(model, tuple(torch.cat(t) for t in zip(*each, strict=True)))
            else:
                value = torch.stack([loss(model, batch) for batch in each]).mean()
            value = value / case.gradient_accumulation
            value.backward()
            total += value.item()
        optimizer.step()
        losses[str(step)] = total
    return losses


def launched(launcher, case):
    outcome = launcher.launch(LaunchRequest(case=case, round=0, import_paths=(str(ROOT),)))
    assert isinstance(outcome, LaunchResult), f"{outcome}\n{getattr(outcome, 'traceback', '')}"
    return outcome


def largest_change(outcome, expected, steps):
    return max(abs(outcome.losses[step] - expected[step]) for step in steps) / expected["1"]


def normalises_batches(case):
    """Return whether the model has statistics of its batch, which are those of each rank."""
    modules = _parts(case)[0].model.modules()
    return any(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in modules)


@pytest.mark.parametrize("case", [*shipped()])
def test_ranks_have_the_losses_of_one_process_on_the_global_batch(launcher, case):
    """With BatchNorm, each rank normalises its own samples, and so does the one process.

    There only the first two steps are compared: rounding grows by a factor of thousands in each
    step of a batch of four samples.
    """
    batch_norm = normalises_batches(case)
    steps = ("1",) if batch_norm else ("1", "2", "4", "8")
    lossy = LOSSY.get(case.comm_hook.kind, TOLERANCE) if case.comm_hook is not None else TOLERANCE

    outcome = launched(launcher, case)

    change = largest_change(outcome, one_process(case, whole=not batch_norm), steps)
    print(f"CHANGE {case.suite} {case.id} {change:.1e}", [f"{s}: {largest_change(outcome, one_process(case, whole=not batch_norm), (s,)):.0e}" for s in ("1","2","4","8")])
    assert change < lossy
    assert len({rank.digest for rank in outcome.ranks}) == 1
