"""The pace of a step: host-bound, or bound by the GPU."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from ddp_perf.core.case import Case
from ddp_perf.core.decomposition import RankProbe

_LEAST_LEAD = 0.1  # of a step. The queue holds 1,024 launches, a tenth of a step of 10,000


def gained_lead_s(step_s: Sequence[float], leads_s: Sequence[float]) -> float:
    """Return by how much the host got ahead of its GPU in the timed loop, in seconds.

    ``leads_s`` are its leads at the end of each step. Host and GPU begin together, and the queue is
    empty then. A slow host has a lead at each boundary as well, if a step ends with long kernels.
    But then the GPU needs that much longer for the first step than for others, so it is no gain.
    """
    if not leads_s:
        return 0.0
    later = leads_s[len(leads_s) // 2 :]
    return statistics.median(later) - max(0.0, step_s[0] - statistics.median(step_s))


def is_host_bound(lead_s: float, step_s: float, *, waits: bool) -> bool | None:
    """Return whether the GPU waited for the host, or None if these figures do not show it.

    ``lead_s`` is what the host gained. A host that is faster than its GPU gains in every step,
    until the queue of launches is full: whole steps, or a part of one that has thousands of
    launches. A slower host gains nothing. ``waits`` states whether the host waits for the GPU in
    each step: then it may gain nothing, however fast it is.
    """
    if lead_s >= _LEAST_LEAD * step_s:
        return False
    return None if waits else True


def waits_for_gpu(case: Case, probe: RankProbe | None) -> bool:
    """Return whether the host waits for the GPU in each step, or may do so.

    The GradScaler of fp16 does: it reads whether any gradient was infinite. FSDP with parameters
    on the host does: its optimizer waits for the gradients. A script that was not probed may.
    """
    offloads = case.fsdp is not None and case.fsdp.cpu_offload
    if probe is None:
        waits = case.script is not None  # a captured step does not: a graph reads nothing
    else:
        waits = probe.host_reads > 0 or bool(probe.host_waits)
    return case.precision == "fp16" or offloads or waits
