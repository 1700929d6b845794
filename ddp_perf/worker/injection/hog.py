"""A busy neighbour: ``python -m ddp_perf.worker.injection.hog PARENT`` burns one core until killed.

A process of its own, so that it competes with the rank for its cores as a stranger would,
and without torch, so that it starts at once. It dies with the rank that started it, yet bears
a name by which it passes for none of the rank's own.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from ddp_perf.system.host.parent_death import die_with_parent
from ddp_perf.system.host.processes import STRANGER


@contextlib.contextmanager
def hogs(count: int) -> Iterator[None]:
    """``count`` of them on the cores of this process, busy from the first line of the block."""
    command = [sys.executable, "-m", "ddp_perf.worker.injection.hog", str(os.getpid())]
    with contextlib.ExitStack() as stack:
        for process in [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(count)]:
            stack.callback(process.wait)
            stack.callback(process.kill)
            assert process.stdout is not None
            if not process.stdout.readline():
                raise RuntimeError("a busy process of cpu-hog did not start")
        yield


def main(parent: int) -> None:
    die_with_parent(parent)
    Path("/proc/self/comm").write_text(STRANGER, encoding="utf-8")
    print("busy", flush=True)
    while True:
        pass


if __name__ == "__main__":
    main(int(sys.argv[1]))
