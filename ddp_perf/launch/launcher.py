"""The interface of a launcher. Code above it does not depend on how ranks are started."""

from __future__ import annotations

from typing import Protocol

import msgspec

from ddp_perf.core.case import Case
from ddp_perf.core.launch import LaunchFailure, LaunchRequest, LaunchResult


class Runtime(msgspec.Struct, frozen=True, kw_only=True):
    """The versions in the interpreter that runs the ranks. None: torch was built without it."""

    python: str
    torch: str
    cuda: str | None
    cudnn: str | None
    nccl: str | None
    blas: str | None

    @property
    def lacking(self) -> str | None:
        """The part that the gpu tier needs and torch lacks: "CUDA" or "NCCL"; None: no part."""
        if self.cuda is None:
            return "CUDA"
        return "NCCL" if self.nccl is None else None


class Launcher(Protocol):
    """A launcher starts fresh process groups, supervises every rank, and leaves no process."""

    def nodes(self, case: Case) -> tuple[str, ...]:
        """Return the nodes that a request may name, the default one first; (): one machine."""
        ...

    def runtime(self, case: Case | None = None) -> Runtime:
        """Return the versions that ranks of ``case``, or of any case, run on.

        Raises LaunchError if they cannot be read.
        """
        ...

    def launch(self, request: LaunchRequest) -> LaunchResult | LaunchFailure:
        """Run one launch to its end. Raises LaunchError if ranks cannot be started."""
        ...

    def close(self) -> None:
        """End every process that still runs. A second call does nothing."""
        ...
