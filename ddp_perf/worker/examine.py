"""The examination of a trainer after its timed steps: counts of one step, and the probe."""

from __future__ import annotations

from ddp_perf.core.case import Case
from ddp_perf.core.decomposition import RankProbe
from ddp_perf.worker.counted.digest import parameter_digest
from ddp_perf.worker.counting.structure import (
    SETTLED_AFTER,
    StepCounts,
    count_structure,
    ddp_logging,
)
from ddp_perf.worker.probe.preconditions import NO_STRUCTURE, all_agree
from ddp_perf.worker.rank_context import RankContext
from ddp_perf.worker.step_probe import drain_loaders, probe
from ddp_perf.worker.steps.graph import is_captured
from ddp_perf.worker.steps.plan import StepPlan
from ddp_perf.worker.steps.protocol import StepFacts
from ddp_perf.worker.steps.trainer import Trainer


def examine_training(
    case: Case, trainer: Trainer, context: RankContext, *, probe_steps: int
) -> StepPlan[StepFacts]:
    """Read what is known, count one more step, then probe ``probe_steps`` further ones. Collective.

    What needs no further step comes first, since such a step may fail: it runs uncompiled, for
    example, and needs more memory than the timed ones. A captured step is not probed: a graph runs
    as a whole, and the time of an eager step is not spent where the time of the captured one is.
    """
    examination = context.examination
    trainer.release()  # nothing but the graph itself sees what it replays
    digest = yield from examination.together("digest", _digest(trainer))
    logging = examination.alone("ddp_logging", lambda: ddp_logging(trainer.module))
    losses = examination.alone("losses", trainer.losses.read)
    counts = yield from examination.together("structure", _counts(trainer, context))
    probed = None
    if not is_captured(case, context.device):
        # After all the others: it times DDP's steps by itself, and lets parameters differ by rank.
        probing = _probed(case, trainer, counts, context, probe_steps)
        probed = yield from examination.together("probe", probing)
    return StepFacts(
        digest=digest,
        structure=counts.structure if counts is not None else None,
        ddp_logging=logging or {},
        probe=probed,
        flops=counts.flops if counts is not None else None,
        flops_by_format=counts.flops_by_format if counts is not None else {},
        losses=losses or {},
        loss_unit=trainer.loss_unit,
        one_batch=trainer.one_batch,
    )


def _digest(trainer: Trainer) -> StepPlan[int]:
    yield from trainer.synchronise()
    return parameter_digest(trainer.module)


def _counts(trainer: Trainer, context: RankContext) -> StepPlan[StepCounts | None]:
    yield from trainer.settle(SETTLED_AFTER)
    return (yield from count_structure(trainer.module, context.examination))


def _probed(
    case: Case,
    trainer: Trainer,
    counts: StepCounts | None,
    context: RankContext,
    steps: int,
) -> StepPlan[RankProbe | None]:
    if not all_agree(counts is not None, context.device) or counts is None:
        context.examination.missing.setdefault("probe", NO_STRUCTURE)
        return None
    yield from drain_loaders(case)
    return (yield from probe(case, trainer, counts.structure, context.device, steps))
