"""Every suite that ships trains on N ranks as one process does on the batches of all of them.

The launched ranks are those of the suite: its workload and model, its strategy, options and hooks.
Only dropout is off, because each rank draws masks of its own, and a data loader has no processes of
its own. Parameters are compared in float64, by ``test_workloads.py`` and the tests of strategies.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
import torch
from torch import nn

from ddp_perf.config.loading import Overrides, find_suites, load_cases
from ddp_perf.core.case import Schedule
from ddp_perf.core.launch import LaunchRequest, LaunchResult
from tests.correctness.one_process import batches_of, comparable, parts_of_ranks
from tests.correctness.training import HOOK_ROUNDINGS, LAYER_ROUNDINGS, UNIT_ROUNDOFF

ROOT = Path(__file__).parents[2]
STEPS = 8
# The largest change of a loss, as a share of the first one; seen: 2e-7.
TOLERANCE = 1e-5
SUITES = [*find_suites(ROOT / "bench_configs" / "cpu"), ROOT / "bench_configs" / "cpu_quick.yaml"]
# Between the largest and the smallest buckets of a suite, which both train here.
SWEPT = {"buckets-0.05", "buckets-0.25", "buckets-0.5"}
SHORT = Schedule(
    steps=STEPS, warmup=STEPS - 1, launches=1, start_deadline_s=300, step_deadline_s=60
)


def shipped():
    """Yield the cases of several ranks of all CPU suites, with the first batch size of each.

    Those of the MLP are fast; ``test_fsdp.py``, ``test_hooks.py`` and others train FSDP and each
    technique in short.
    """
    seen = set()
    for case in load_cases(SUITES, Overrides()):
        work = {name: value for name, value in case.work().items() if name != "batch_size"}
        key = case.suite, repr(work)
        if case.trains and case.world_size > 1 and case.technique not in SWEPT and key not in seen:
            seen.add(key)
            short = msgspec.structs.replace(comparable(case), schedule=SHORT)
            fast = case.workload == "mlp" and case.technique is None
            marks = [] if fast else [pytest.mark.slow]
            yield pytest.param(short, id=f"{case.suite}-{case.id}", marks=marks)


def one_process(case, *, whole, steps=STEPS):
    """Return the losses of one process by step, in float32, on the batches of all ranks.

    They are concatenated, or with ``whole=False`` the model computes those of each rank by itself.
    Techniques change no loss of one process, so it trains once for all of a suite.
    """
    options = case.training
    own = (options.model, options.data, options.gradient_accumulation)
    trained = repr((case.workload, own, case.world_size, case.batch_size)), whole, steps
    if trained not in _losses:
        _losses[trained] = _train(case, whole=whole, steps=steps)
    return _losses[trained]


_losses: dict[tuple[str, bool, int], dict[str, float]] = {}


def _train(case, *, whole, steps):
    parts = parts_of_ranks(case)
    model, loss = parts[0].model, parts[0].loss
    optimizer = parts[0].optimizer(model.parameters())
    batches = [batches_of(part) for part in parts]
    losses = {}
    for step in range(1, steps + 1):
        optimizer.zero_grad()
        shares = []
        for _ in range(case.training.gradient_accumulation):
            each = [next(of_rank) for of_rank in batches]
            if whole:
                each = [tuple(torch.cat(tensors) for tensors in zip(*each, strict=True))]
            mean = torch.stack([loss(model, batch) for batch in each]).mean()
            shares.append(mean / case.training.gradient_accumulation)
            shares[-1].backward()
        optimizer.step()
        losses[str(step)] = sum(share.item() for share in shares)
    return losses


def launched(launcher, case):
    outcome = launcher.launch(LaunchRequest(case=case, round=0, import_paths=(str(ROOT),)))
    assert isinstance(outcome, LaunchResult), f"{outcome}\n{getattr(outcome, 'traceback', '')}"
    return outcome


def tolerance_of(case):
    """Return the bound of a case: of its half precision, which one process lacks.

    It is that of sums; batch norm over a few samples also magnifies the rounding of each layer.
    """
    roundings = LAYER_ROUNDINGS if normalises_batches(case) else HOOK_ROUNDINGS
    return roundings * UNIT_ROUNDOFF.get(case.precision, 0.0) or TOLERANCE


def first_lossy_step(case):
    """Return the first step with a loss that a hook changes, which sends some gradients later."""
    start_step = getattr(case.training.comm_hook, "start_step", 0)
    return start_step + 1 if start_step else STEPS + 1


def normalises_batches(case):
    """Return whether the model has statistics of its batch, which are those of each rank."""
    modules = parts_of_ranks(case)[0].model.modules()
    return any(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in modules)


CASES = list(shipped())


@pytest.mark.parametrize("case", CASES)
def test_ranks_have_the_losses_of_one_process_on_the_global_batch(launcher, case):
    """With BatchNorm each rank normalises its own samples, and so does the one process.

    There only the first step is compared: with a few samples rounding decides the second one. Of a
    hook that sends a part of the gradients later, only the steps before are compared: from then on
    it trains in another way, and ``test_hooks.py`` proves that it converges.
    """
    batch_norm = normalises_batches(case)
    steps = ("1",) if batch_norm else ("1", "2", "4", "8")
    expected = one_process(case, whole=not batch_norm, steps=int(steps[-1]))

    outcome = launched(launcher, case)

    for step in steps:
        if int(step) < first_lossy_step(case):
            change = abs(outcome.losses[step] - expected[step]) / expected["1"]
            assert change < tolerance_of(case), f"step {step}"
    if first_lossy_step(case) <= STEPS:  # its batch is the same in each step
        assert outcome.losses["8"] < outcome.losses["2"]
    assert len({rank.digest for rank in outcome.ranks}) == 1


BATCH_NORM = [case for case in CASES if case.values[0].workload == "resnet50"]


@pytest.mark.parametrize("case", BATCH_NORM)
def test_batch_norm_over_the_whole_batch_has_another_loss(case):
    """Otherwise the ranks could be compared with the whole batch, as in the other suites."""
    whole, by_rank = (one_process(case, whole=whole, steps=1)["1"] for whole in (True, False))

    assert abs(whole - by_rank) / by_rank > 100 * TOLERANCE


def test_a_rank_without_a_batch_of_its_own_would_be_found(launcher):
    """The bound of a lossless case is far below what a wrong batch changes."""
    case = CASES[0].values[0]
    expected = one_process(msgspec.structs.replace(case, world_size=1), whole=True, steps=1)

    assert (
        abs(launched(launcher, case).losses["1"] - expected["1"]) / expected["1"] > 100 * TOLERANCE
    )
