"""A stopwatch beside a script: ``script_stamps.py STAMPS SCRIPT [ARGUMENT ...]`` runs the script.

It writes the time at the end of each step of an optimizer to STAMPS.RANK, and what the script
prints to STAMPS.RANK.out. It needs nothing of the package. With STAMPS_STEPS in the environment it
ends after so many steps. STAMPS_CORES has the cores of each rank: ``0,1;2,3``.
"""

import os
import runpy
import struct
import sys
import time

from torch.optim.optimizer import register_optimizer_step_post_hook


def main(stamps, script, *arguments):
    rank = int(os.environ["RANK"])
    if cores := os.environ.get("STAMPS_CORES"):
        os.sched_setaffinity(0, map(int, cores.split(";")[rank].split(",")))
    last = int(os.environ.get("STAMPS_STEPS", 0))
    # A rank is ended in the middle of the script, so nothing may wait in a buffer.
    file = open(f"{stamps}.{rank}", "wb", buffering=0)
    sys.stdout = open(f"{stamps}.{rank}.out", "w", buffering=1, encoding="utf-8")
    done = 0

    def stamp(optimizer, args, kwargs):
        nonlocal done
        file.write(struct.pack("d", time.perf_counter()))
        done += 1
        if done == last:
            os._exit(0)

    register_optimizer_step_post_hook(stamp)
    sys.argv = [script, *arguments]
    sys.path[0] = os.path.dirname(os.path.abspath(script))
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main(*sys.argv[1:])
