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
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    times = os.open(f"{stamps}.{rank}", flags)
    os.dup2(os.open(f"{stamps}.{rank}.out", flags), 1)
    done = 0

    def stamp(optimizer, args, kwargs):
        nonlocal done
        os.write(times, struct.pack("d", time.perf_counter()))
        done += 1
        if done == last:
            sys.stdout.flush()
            os._exit(0)

    register_optimizer_step_post_hook(stamp)
    sys.argv = [script, *arguments]
    sys.path[0] = os.path.dirname(os.path.abspath(script))
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main(*sys.argv[1:])
