"""A stopwatch beside a script: ``script_stamps.py SIDE STAMPS SCRIPT [ARGUMENT ...]`` runs it.

It writes the time at the end of each step of an optimizer to STAMPS/SIDE.RANK, and what the script
prints to STAMPS/SIDE.RANK.out. It needs nothing of the package.

Two sides run at the same time and on the same cores, ``watched`` and ``alone``, and take turns:
each waits after TURN steps until the other one has done as many. So a machine whose speed drifts
within seconds is as fast for both. When one side has ended, the other one ends, too.
"""

import contextlib
import os
import runpy
import struct
import sys
import time

from torch.optim.optimizer import register_optimizer_step_post_hook

WATCHED, ALONE = "watched", "alone"
TURN = 11  # not 10: some scripts print the time of each tenth step


def main(side, stamps, script, *arguments):
    rank = os.environ["RANK"]
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    times = os.open(f"{stamps}/{side}.{rank}", flags)
    os.dup2(os.open(f"{stamps}/{side}.{rank}.out", flags), 1)
    receive, send = _meet(side, stamps, rank)
    done = 0

    def stamp(optimizer, args, kwargs):
        nonlocal done
        os.write(times, struct.pack("d", time.perf_counter()))
        done += 1
        if done == 1 and side == ALONE:
            _await_turn(receive)
        if done % TURN == 0:
            with contextlib.suppress(BrokenPipeError):
                os.write(send, b".")
            _await_turn(receive)

    register_optimizer_step_post_hook(stamp)
    sys.argv = [script, *arguments]
    sys.path[0] = os.path.dirname(os.path.abspath(script))
    runpy.run_path(script, run_name="__main__")


def _meet(side, stamps, rank):
    """Return what this side receives from and sends to; ``alone`` takes the others' cores."""
    if side == WATCHED:
        send = os.open(f"{stamps}/to_alone.{rank}", os.O_WRONLY)
        os.write(send, ",".join(map(str, os.sched_getaffinity(0))).encode())
        return os.open(f"{stamps}/to_watched.{rank}", os.O_RDONLY), send
    receive = os.open(f"{stamps}/to_alone.{rank}", os.O_RDONLY)
    os.sched_setaffinity(0, map(int, os.read(receive, 10_000).split(b",")))
    return receive, os.open(f"{stamps}/to_watched.{rank}", os.O_WRONLY)


def _await_turn(receive):
    if not os.read(receive, 1):  # the other side has ended
        sys.stdout.flush()
        os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
