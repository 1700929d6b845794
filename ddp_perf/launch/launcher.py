"""The seam between a plan and the machinery that starts ranks. Nothing above knows which."""

from __future__ import annotations

from typing import Protocol

import msgspec

from ddp_perf.core.case import Case
from ddp_perf.core.launch import LaunchFailure, LaunchRequest, LaunchResult


class Runtime(msgspec.Struct, frozen=True, kw_only=True):
    """Versions in the interpreter that runs the ranks. None: not built in."""

    python: str
    torch: str
    cuda: str | None
    cudnn: str | None
    nccl: str | None
    blas: str | None

    @property
    def lacking(self) -> str | None:
        """What the gpu tier needs and torch was built without; None: nothing."""
        if self.cuda is None:
            return "CUDA"
        return "NCCL" if self.nccl is None else None


class Launcher(Protocol):
    """Starts fresh process groups, supervises every rank, and leaves nobody behind."""

    def runtime(self, case: Case | None = None) -> Runtime:
        """The versions that ranks run on: those of ``case``, or any. Raises LaunchError."""
        ...

    def launch(self, request: LaunchRequest) -> LaunchResult | LaunchFailure:
        """Run one launch to its end. Raises LaunchError when ranks cannot be started."""
        ...

    def close(self) -> None:
        """End whatever still runs. Idempotent."""
        ...
