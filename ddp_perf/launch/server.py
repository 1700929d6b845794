"""The server of the ranks of a node: ``python3 -m ddp_perf.launch.server``.

It reads a line (`start_line`) on its standard input, imports torch, and answers requests there on
its standard output, as marked lines (`Channel`). It ends, with all that it started, when its
standard input is closed, which happens if its driver ends. It must stay single-threaded and must
not initialise CUDA: every rank is a fork of it.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from ddp_perf.launch.interpreter import (
    install_command,
    missing_here,
    package_path,
    server_environment,
)

if TYPE_CHECKING:  # what needs packages is imported once they are known to be there
    from ddp_perf.launch.launcher import Runtime
    from ddp_perf.launch.protocol import Channel


def main(arguments: list[str]) -> int:
    """Serve one driver until it closes the standard input. ``arguments``: its line, read before."""
    line = arguments[0] if arguments else sys.stdin.buffer.readline().decode()
    if not line:
        print("the command closes the standard input: docker run needs -i", file=sys.stderr)
        return 1
    start = json.loads(line)
    if missing := missing_here():
        lacks = f"{sys.executable} lacks what ranks need: {install_command(missing)}"
        print(lacks, file=sys.stderr)
        return 1
    environ = server_environment({**os.environ, **start["environ"]})
    if "PYTHONPATH" in start["environ"]:  # of a case
        environ["PYTHONPATH"] = package_path(start["environ"])
    if environ != dict(os.environ):  # some variables are read when Python starts
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:], line], environ)
    from ddp_perf.launch.launcher import ScratchDirectory

    if start["directory"] is not None:
        return _serve(start["parent"], start["preloaded"], Path(start["directory"]))
    with contextlib.closing(ScratchDirectory()) as scratch:
        return _serve(start["parent"], start["preloaded"], scratch.path)


def _serve(parent: int | None, preloaded: list[str], directory: Path) -> int:
    """Import torch, and answer requests until the driver closes the channel."""
    from ddp_perf.launch.protocol import own_hello
    from ddp_perf.system.host.permissions import deny_others
    from ddp_perf.system.host.termination import adopt_orphans, die_with_parent, sigterm_calls

    adopt_orphans()
    deny_others()
    ends: contextlib.AbstractContextManager[None] = sigterm_calls(_end)
    if parent is not None:
        die_with_parent(parent)
        # A scheduler sends SIGTERM to every process of a job. The driver decides when this ends.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        ends = contextlib.nullcontext()
    channel = _own_channel()
    with contextlib.suppress(EOFError, ConnectionError, _EndedError), ends:
        # These imports take a second, since they import torch: the guards come first.
        from ddp_perf.launch.supervisor.driver import Driver
        from ddp_perf.launch.supervisor.supervise import serve
        from ddp_perf.worker.rank_setup import freeze, preload

        runtime = read_runtime()
        preload(preloaded)
        if (unfit := _unfit_to_be_forked()) is not None:
            print(unfit, file=sys.stderr)  # the driver shows the last lines
            return 1
        channel.send(own_hello(runtime))
        freeze()
        serve(Driver(channel), directory, elsewhere=parent is None)
    return 0


class _EndedError(BaseException):
    """SIGTERM or SIGHUP: nothing on the way takes it for another error."""


def _end() -> NoReturn:
    raise _EndedError


def _own_channel() -> Channel:
    """Return the channel on the standard streams: what anything else prints goes to stderr."""
    from ddp_perf.launch.protocol import Channel

    channel = Channel(os.dup(0), os.dup(1))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return channel


def read_runtime() -> Runtime:
    """Import torch, and return the versions that it runs on."""
    import torch

    from ddp_perf.launch.launcher import Runtime
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


def _unfit_to_be_forked() -> str | None:
    """Return why ranks cannot be forked from this process and the remedy, or None if they can."""
    import torch

    from ddp_perf.system.host.processes import thread_count

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
    # The working directory, or that of the package, comes last: either may have other modules. What
    # is installed beside the package may be for another interpreter; the package is found without.
    first = sys.path.pop(0)
    if not first.endswith("-packages"):
        sys.path.append(first)
    sys.exit(main(sys.argv[1:]))
