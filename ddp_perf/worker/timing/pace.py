"""The pace of a step: host-bound, or bound by the GPU."""

from __future__ import annotations

from ddp_perf.core.case import Case
from ddp_perf.core.decomposition import RankProbe

_LEAST_LEAD = 0.5  # of a step: the GPU's remaining work when a host with a lead is done


def is_host_bound(lead_s: float, step_s: float, *, waits: bool) -> bool | None:
    """Return whether the GPU waited for the host, or None if these figures do not show it.

    ``lead_s`` is how long the GPU ran on after the host had enqueued the last timed step, in
    seconds. A host that is faster than its GPU increases its lead in every step, up to whole
    steps. A slower host is ahead by the end of one step at most. ``waits`` states whether the host
    waits for the GPU in each step: then it has no lead, however fast it is.
    """
    if lead_s >= _LEAST_LEAD * step_s:
        return False
    return None if waits else True


def waits_for_gpu(case: Case, probe: RankProbe | None) -> bool:
    """Return whether the host waits for the GPU in each step.

    The GradScaler of fp16 does: it reads whether any gradient was infinite. FSDP with parameters
    on the host does: its optimizer waits for the gradients.
    """
    offloads = case.fsdp is not None and case.fsdp.cpu_offload
    reads = probe is not None and probe.host_reads > 0
    return case.precision == "fp16" or offloads or reads
