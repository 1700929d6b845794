"""The utilisation of a case as text: lines of its summary block, and a line of each rank."""

from __future__ import annotations

from ddp_perf.core.case import Case
from ddp_perf.core.launch import RankResult
from ddp_perf.core.utilisation import GpuUse
from ddp_perf.session.result import SuiteResult
from ddp_perf.stats.utilisation import CaseUtilisation


def utilisation_lines(used: CaseUtilisation) -> list[str]:
    """Return the lines of a case's summary block, only of what was read."""
    return [
        f"{name:<17}: {text}"
        for name, text in (
            ("CPU", _cpu(used)),
            ("Network", _network(used)),
            ("RDMA", _rdma(used)),
            ("GPU", _gpu(used)),
            ("GPU links", _links(used)),
        )
        if text
    ]


def rank_utilisation_lines(result: SuiteResult, case_id: str) -> list[str]:
    """Return a line for each rank of the last launch, or none without a reading."""
    measurement = result.measurements[case_id]
    if not measurement.launches:
        return []
    ranks = measurement.launches[-1].ranks
    return [line for rank in ranks if (line := _of_rank(rank, measurement.case)) is not None]


def _cpu(used: CaseUtilisation) -> str:
    if used.cpu_cores is None:
        return ""
    text = f"{used.cpu_cores:.2f} cores a rank, {used.system_cores:.2f} of them in the kernel"
    return f"{text}; loaders {used.loader_cores:.2f} cores a rank" if used.loader_cores else text


def _network(used: CaseUtilisation) -> str:
    if used.network_bytes_per_s is None:
        return ""
    share = "" if used.network_share is None else f", {used.network_share:.0%} of its link"
    return f"{used.network_bytes_per_s / 1e6:,.0f} MB/s over {used.interface}{share} (whole host)"


def _rdma(used: CaseUtilisation) -> str:
    if used.rdma_bytes_per_s is None:
        return ""
    share = "" if used.rdma_share is None else f", {used.rdma_share:.0%} of their rate"
    return f"{used.rdma_bytes_per_s / 1e9:.3g} GB/s over {used.rdma_ports}{share} (whole host)"


def _gpu(used: CaseUtilisation) -> str:
    parts = [
        None if used.gpu_busy is None else f"busy {used.gpu_busy:.0%}",
        None if used.sm_clock_mhz is None else f"SM clock {used.sm_clock_mhz:,.0f} MHz",
        _memory(used.gpu_memory_used),
    ]
    return ", ".join(filter(None, parts))


def _links(used: CaseUtilisation) -> str:
    rates = {"PCIe": used.pcie_bytes_per_s, "NVLink": used.nvlink_bytes_per_s}
    known = [f"{name} {rate / 1e9:.3g} GB/s" for name, rate in rates.items() if rate is not None]
    return f"{', '.join(known)} (of a GPU, the busier direction)" if known else ""


def _memory(used: float | None) -> str | None:
    return None if used is None else f"{used / 1e9:.3g} GB in use"


def _of_rank(rank: RankResult, case: Case) -> str | None:
    """Return what a rank used and how many samples it trained on (the columns of document 002)."""
    used = rank.utilisation
    if used is None:
        return None
    parts = [f"{used.cpu_s / used.period_s:.2f} cores"]
    if used.loaders_cpu_s:
        parts.append(f"loaders {used.loaders_cpu_s / used.period_s:.2f} cores")
    if used.gpu is not None:
        parts += _of_gpu(used.gpu)
    if case.trains:
        samples = case.samples_per_step // case.world_size * len(rank.step_s)
        parts.append(f"{samples:,} samples in the timed steps")
    return f"rank {rank.placement.rank} used {', '.join(parts)}"


def _of_gpu(used: GpuUse) -> list[str]:
    busy = None if used.busy is None else f"GPU busy {used.busy:.0%}"
    return [part for part in (busy, _memory(used.memory_used)) if part is not None]
