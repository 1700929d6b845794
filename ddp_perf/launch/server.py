"""The forkserver: ``python -m ddp_perf.launch.server SOCKET PULSE PARENT DIRECTORY [WORKLOAD]``.

SOCKET and PULSE are descriptors of the driver's connection and of the memory of its Pulse.
The process must stay single-threaded and must not initialise CUDA: every rank is a fork of it.
"""

from __future__ import annotations

import gc
import re
import signal
import sys
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path

import msgspec

from ddp_perf.core.launch import LaunchRequest
from ddp_perf.launch.launcher import Runtime
from ddp_perf.launch.pulse import Pulse
from ddp_perf.system.host.parent_death import die_with_parent
from ddp_perf.system.host.processes import thread_count

_REQUEST = msgspec.json.Decoder(LaunchRequest)


def main(
    descriptor: int, pulse: Pulse, parent: int, directory: Path, preloaded: Sequence[str]
) -> None:
    """Import torch and `preloaded` workloads, send the versions, and run launches.

    Returns when the driver closes the connection.
    """
    die_with_parent(parent)
    # A scheduler sends SIGTERM to every process of a job. The driver decides when this one ends.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    # These imports take a second, since they import torch: the guard comes first.
    from ddp_perf.launch.supervisor import supervise
    from ddp_perf.workloads.registry import find_builder

    runtime = _runtime()
    for workload in preloaded:
        find_builder(workload)
    if (unfit := _unfit_to_be_forked()) is not None:
        sys.exit(unfit)  # the driver shows the last line of the output
    driver = Connection(descriptor)
    driver.send_bytes(msgspec.json.encode(runtime))
    gc.collect()
    gc.freeze()  # so gc.collect() in a rank does not visit torch: saves 150 ms
    while True:
        try:
            request = _REQUEST.decode(driver.recv_bytes())
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
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return f"CUDA was initialised before ranks were forked, so no rank could use it: {remedy}"
    return None


def _runtime() -> Runtime:
    import torch
    import torch._dynamo  # DDP imports it: here, to save 1.2 s in every rank

    from ddp_perf.torch_compat import cudnn_version

    cuda = torch.version.cuda
    has_nccl = cuda is not None and torch.distributed.is_nccl_available()
    blas = re.search(r"BLAS_INFO=(\w+)", torch.__config__.show())
    return Runtime(
        python=".".join(map(str, sys.version_info[:3])),
        torch=str(torch.__version__),
        cuda=cuda,
        cudnn=cudnn_version() if cuda else None,
        nccl=".".join(map(str, torch.cuda.nccl.version())) if has_nccl else None,  # type: ignore[no-untyped-call]
        blas=blas[1] if blas else None,
    )


if __name__ == "__main__":
    socket, memory, parent_pid = map(int, sys.argv[1:4])
    main(socket, Pulse(memory), parent_pid, Path(sys.argv[4]), sys.argv[5:])
