"""Whether a step goes at the pace of the host or of its GPU."""

from __future__ import annotations

from ddp_perf.core.case import Case
from ddp_perf.core.decomposition import RankProbe

_LEAST_LEAD = 0.5  # of a step: what the GPU may still have to do when the host is done


def is_host_bound(lead_s: float, step_s: float, *, waits: bool) -> bool | None:
    """Return whether the GPU waited for the host, or None if these figures do not show it.

    ``lead_s``: seconds for which the GPU went on after the host had enqueued the last timed step.
    A host that is faster than its GPU gains on it in every step, until it is whole steps ahead;
    one that is slower is never ahead by more than the end of one. ``waits``: whether the host
    reads a value of the GPU in each step, after which it is not ahead either.
    """
    if lead_s >= _LEAST_LEAD * step_s:
        return False
    return None if waits else True


def waits_for_gpu(case: Case, probe: RankProbe | None) -> bool:
    """Return whether each step reads a value of the GPU: the scaler of fp16 reads whether any
    gradient was infinite.
    """
    return case.precision == "fp16" or (probe is not None and probe.host_reads > 0)
