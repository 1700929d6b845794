"""The examination of a trainer after its timed steps: counts of one step, and the probe."""

from __future__ import annotations

import torch

from ddp_perf.core.case import Case
from ddp_perf.worker.counted.digest import parameter_digest
from ddp_perf.worker.counted.flops import FlopCounter
from ddp_perf.worker.counted.structure import SETTLED_AFTER, count_structure, ddp_logging
from ddp_perf.worker.probe.probe import drain_loaders, probe
from ddp_perf.worker.steps.graph import is_captured
from ddp_perf.worker.steps.plan import StepPlan
from ddp_perf.worker.steps.protocol import StepFacts
from ddp_perf.worker.steps.trainer import Trainer


def examine_training(
    case: Case, trainer: Trainer, device: torch.device, *, probe_steps: int
) -> StepPlan[StepFacts]:
    """Count one more step, then probe ``probe_steps`` further ones. Collective.

    A captured step is not probed: a graph runs as a whole, and the time of an eager step is not
    spent where the time of the captured one is.
    """
    trainer.release()  # nothing but the graph itself sees what it replays
    yield from trainer.settle(SETTLED_AFTER)
    with FlopCounter() as counter:
        structure = yield from count_structure(trainer.module)
    # All before the probe, which times DDP's steps by itself and lets parameters differ by rank.
    digest, logging = parameter_digest(trainer.module), ddp_logging(trainer.module)
    losses = trainer.losses.read()
    probed = None
    if not is_captured(case, device):
        yield from drain_loaders(case)
        probed = yield from probe(case, trainer, structure, device, probe_steps)
    return StepFacts(
        digest=digest,
        structure=structure,
        ddp_logging=logging,
        probe=probed,
        flops=counter.flops,
        flops_by_format=counter.by_format,
        losses=losses,
        loss_unit=trainer.loss_unit,
        one_batch=trainer.one_batch,
        unit=trainer.unit,
    )
