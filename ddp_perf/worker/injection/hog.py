"""A CPU burner: ``python -m ddp_perf.worker.injection.hog PARENT`` keeps one core busy.

It is a separate process, so it competes with the rank for its cores as any other program does. It
does not import torch, so it starts quickly. It dies with the rank that started it, but its process
name does not count as one of the rank's own processes.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from ddp_perf.system.host.processes import STRANGER
from ddp_perf.system.host.termination import die_with_parent


@contextlib.contextmanager
def burn_cores(count: int) -> Iterator[None]:
    """Run ``count`` busy processes on the cores of this process during the ``with`` block.

    All are busy when the block begins. Raises RuntimeError if one does not start.
    """
    command = [sys.executable, "-m", "ddp_perf.worker.injection.hog", str(os.getpid())]
    with contextlib.ExitStack() as stack:
        for process in [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(count)]:
            stack.callback(process.wait)
            stack.callback(process.kill)
            assert process.stdout is not None
            if not process.stdout.readline():
                raise RuntimeError("cpu-hog: a busy process did not start")
        yield


def main(parent: int) -> None:
    """Keep one core busy until this process is killed or the process ``parent`` ends."""
    die_with_parent(parent)
    Path("/proc/self/comm").write_text(STRANGER, encoding="utf-8")
    print("busy", flush=True)
    while True:
        pass


if __name__ == "__main__":
    main(int(sys.argv[1]))
