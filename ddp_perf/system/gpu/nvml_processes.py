"""The processes that compute on a GPU through NVML, without the server of MPS."""

from __future__ import annotations

from typing import Any

from ddp_perf.core.gpu import GpuProcess
from ddp_perf.system.gpu.nvml_calls import first_known, optional

# All names that a function has had, the newest first.
_PROCESSES = "nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetComputeRunningProcesses_v2"
_MPS_CLIENTS = (
    "nvmlDeviceGetMPSComputeRunningProcesses",
    "nvmlDeviceGetMPSComputeRunningProcesses_v2",
)
_MPS_SERVER = "nvidia-cuda-mps-server"


def processes_on(handle: Any) -> tuple[GpuProcess, ...] | None:
    """Return the processes that compute on a GPU, or None if NVML does not list them.

    The clients of MPS are listed apart. Its server, in whose context they compute, is listed among
    the others, and computes nothing itself.
    """
    found = first_known(_PROCESSES, handle)
    if found is None:
        return None
    clients = {one.pid: one for one in first_known(_MPS_CLIENTS, handle) or ()}
    others = {one.pid: one for one in found if one.pid not in clients}
    named = [pid for pid in others if _is_mps_server(pid)]
    # A container hides the names. Where there are clients, one of the others is their server.
    for pid in named or list(others)[: bool(clients)]:
        del others[pid]
    return tuple(
        GpuProcess(pid=one.pid, memory=one.usedGpuMemory)
        for one in (*others.values(), *clients.values())
    )


def _is_mps_server(pid: int) -> bool:
    name = optional("nvmlSystemGetProcessName", pid)
    return name is not None and _MPS_SERVER in (name if isinstance(name, str) else name.decode())
