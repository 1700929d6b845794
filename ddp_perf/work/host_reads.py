"""The rule of host reads: the operations for whose result the host of a GPU waits."""

from __future__ import annotations

from ddp_perf.core.work import HOST_READS, OperationCount, Site, StepWork

_TRAINER = "ddp_perf/worker/steps/trainer.py"


def is_host_read(counted: OperationCount, site: Site) -> bool:
    """Return whether the host waits for a GPU there, by an operation of HOST_READS.

    It does not for numbers that are on the host anyway: those of the optimizer, such as Adam's
    steps, and the parameters that DDP's reducer counts, in int32 during the Trainer's backward. The
    scaler of fp16 reads from the GPU in the Trainer's own line of the optimizer phase.
    """
    if counted.name not in HOST_READS:
        return False
    is_trainers = site.file == _TRAINER
    if counted.phase == "optimizer":
        return is_trainers
    return not (is_trainers and counted.phase == "backward" and counted.dtype == "int32")


def host_reads(work: StepWork) -> int:
    """Return the number of host reads of a step."""
    return sum(one.count for one in work.operations if is_host_read(one, work.sites[one.site]))
