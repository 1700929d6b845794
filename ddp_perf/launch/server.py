"""The forkserver: ``python -m ddp_perf.launch.server SOCKET PULSE PARENT DIRECTORY [WORKLOAD]``.

SOCKET and PULSE are descriptors of the driver's connection and of the memory of its Pulse.
The process must stay single-threaded and must not initialise CUDA: every rank is a fork of it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path

import msgspec

from ddp_perf.core.launch import LaunchRequest
from ddp_perf.core.work import CountRequest
from ddp_perf.launch.protocol import Pulse, own_hello
from ddp_perf.launch.rank_packages import install_command, missing_here
from ddp_perf.launch.runtime import read_runtime
from ddp_perf.system.host.processes import thread_count
from ddp_perf.system.host.termination import adopt_orphans, die_with_parent

_REQUEST: msgspec.json.Decoder[LaunchRequest | CountRequest] = msgspec.json.Decoder(
    LaunchRequest | CountRequest
)


def main(
    descriptor: int, pulse: Pulse, parent: int, directory: Path, preloaded: Sequence[str]
) -> None:
    """Import torch and `preloaded` workloads, send a Hello, and run launches and counts.

    Returns when the driver closes the connection.
    """
    die_with_parent(parent)
    adopt_orphans()
    # A scheduler sends SIGTERM to every process of a job. The driver decides when this one ends.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if missing := missing_here():
        sys.exit(f"it lacks what ranks need: {install_command(missing)}")
    # These imports take a second, since they import torch: the guard comes first.
    from ddp_perf.launch.supervisor import supervise
    from ddp_perf.worker.rank_setup import freeze, preload

    runtime = read_runtime()
    preload(preloaded)
    if (unfit := _unfit_to_be_forked()) is not None:
        sys.exit(unfit)  # the driver shows the last line of the output
    driver = Connection(descriptor)
    driver.send_bytes(own_hello(runtime))
    freeze()
    while True:
        try:
            request = _REQUEST.decode(driver.recv_bytes())
            if isinstance(request, CountRequest):
                counted = supervise.run_count(request, directory, driver, pulse.beat)
                driver.send_bytes(msgspec.json.encode(counted))
                continue
            outcome = supervise.run_launch(request, directory, driver, pulse.beat)
        except (EOFError, ConnectionError):
            return
        driver.send_bytes(msgspec.json.encode(outcome))


def _unfit_to_be_forked() -> str | None:
    """Return why ranks cannot be forked from this process and the remedy, or None if they can."""
    import torch

    remedy = "start without sitecustomize, .pth files and LD_PRELOAD that do this"
    if thread_count() != 1:
        return f"there is more than one thread after the imports, so ranks would hang: {remedy}"
    if torch.cuda.is_initialized() or has_opened_cuda():  # type: ignore[no-untyped-call]
        return f"CUDA was initialised before ranks were forked, so no rank could use it: {remedy}"
    return None


def has_opened_cuda(descriptors: Path = Path("/proc/self/fd")) -> bool:
    """Return whether CUDA's driver was initialised in this process, by torch or by other code.

    The driver opens this device. NVML, which a fork may use, opens others.
    """
    for descriptor in descriptors.iterdir():
        with contextlib.suppress(OSError):  # the one of the listing itself is closed by now
            if os.readlink(descriptor).startswith("/dev/nvidia-uvm"):
                return True
    return False


if __name__ == "__main__":
    socket, memory, parent_pid = map(int, sys.argv[1:4])
    main(socket, Pulse(memory), parent_pid, Path(sys.argv[4]), sys.argv[5:])
