"""Where a measurement was made."""

from __future__ import annotations

import msgspec


class Environment(msgspec.Struct, frozen=True, kw_only=True):
    """Machine and versions. None: does not apply here, or could not be read."""

    accelerator: str  # "NVIDIA H200", or the processor's name
    accelerator_key: str  # names the baseline file
    accelerator_count: int  # GPUs, or cores this process may use
    interconnect: str | None  # "nvlink" or "pcie" between GPUs
    host: str
    os: str
    python: str
    torch: str
    cuda: str | None
    cudnn: str | None
    nccl: str | None
    driver: str | None
    blas: str | None
    commit: str | None
