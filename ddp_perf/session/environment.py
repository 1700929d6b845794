"""The conditions of a measurement: this machine, and the versions that the ranks ran on."""

from __future__ import annotations

import platform
from pathlib import Path

from ddp_perf.core.environment import Environment
from ddp_perf.launch.launcher import Runtime
from ddp_perf.system.capacity import Capacity
from ddp_perf.system.host import current_commit, host_name


def describe_environment(
    capacity: Capacity, tier: str, runtime: Runtime, directory: Path
) -> Environment:
    """``directory`` is where the measured code is checked out."""
    on_gpu = tier == "gpu"
    return Environment(
        accelerator=capacity.accelerator_name(tier),
        accelerator_key=capacity.accelerator_key(tier),
        accelerator_count=capacity.accelerator_count(tier),
        interconnect=capacity.machine.interconnect if on_gpu else None,
        host=host_name(),
        os=platform.platform(),
        python=runtime.python,
        torch=runtime.torch,
        cuda=runtime.cuda if on_gpu else None,
        cudnn=runtime.cudnn if on_gpu else None,
        nccl=runtime.nccl if on_gpu else None,
        driver=capacity.machine.driver if on_gpu else None,
        blas=runtime.blas,
        commit=current_commit(directory),
    )
