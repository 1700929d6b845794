"""The forkserver: ``python -m ddp_perf.launch.server SOCKET PULSE PARENT DIRECTORY [WORKLOAD]``.

SOCKET and PULSE are descriptors: of the driver's connection, and of the memory of its Pulse.
It must stay single-threaded and must not touch CUDA: every rank is a fork of it.
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
    """Preload torch and own workloads, say which torch, then run launches until hung up on."""
    die_with_parent(parent)
    # A scheduler sends it to every process of a job: the driver decides what becomes of this one.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    # These import torch: after the guard, it takes a second.
    from ddp_perf.launch.supervisor import supervise
    from ddp_perf.workloads.registry import find_builder

    runtime = _runtime()
    for workload in preloaded:
        find_builder(workload)
    if (unfit := _unfit_to_be_forked()) is not None:
        sys.exit(unfit)  # the last line of its output, which the driver shows
    driver = Connection(descriptor)
    driver.send_bytes(msgspec.json.encode(runtime))
    gc.collect()
    gc.freeze()  # a later gc.collect() in a rank need not walk torch: 150 ms
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

    remedy = "start it without what runs beside it (sitecustomize, .pth files, LD_PRELOAD)"
    if thread_count() != 1:
        return f"more than one thread after the imports, and forked ranks would hang: {remedy}"
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return f"CUDA was initialised before ranks were forked, and none could use it: {remedy}"
    return None


def _runtime() -> Runtime:
    import torch
    import torch._dynamo  # DDP imports it: 1.2 s in every rank if it is not here already

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
