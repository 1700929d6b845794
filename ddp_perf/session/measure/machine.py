"""The machine as a session uses it: leased for timing, with a launcher."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import NoReturn, Protocol, TypeVar

from ddp_perf.system.capacity import Capacity
from ddp_perf.system.gpu.nvml import keep_open
from ddp_perf.system.host.termination import sigterm_calls
from ddp_perf.system.lease import machine_lease

_LEASE_PATIENCE_S = 600


class _Closable(Protocol):
    def close(self) -> None: ...


_LauncherT = TypeVar("_LauncherT", bound=_Closable)  # a launcher, or those of several sides


@contextlib.contextmanager
def open_machine(
    capacity: Capacity,
    launcher: _LauncherT,
    *,
    on_wait: Callable[[str], None],
    on_sigterm: Callable[[], NoReturn],
) -> Iterator[_LauncherT]:
    """Lease the machine with its GPUs, and yield the launcher, which is closed at the end.

    ``on_wait`` receives a line before this waits for another session. ``on_sigterm`` raises; it
    is called at the first SIGTERM. Raises LeaseError if the machine is not free in time. Between
    two launches this process uses the GPUs, so that the driver does not initialise them anew.
    """
    with (
        machine_lease(patience_s=_LEASE_PATIENCE_S, on_wait=on_wait, gpus=capacity.machine.gpus),
        contextlib.closing(launcher),
        sigterm_calls(on_sigterm),
    ):
        if capacity.machine.gpus:
            keep_open(gpu.uuid for gpu in capacity.machine.gpus)
        yield launcher
