"""The first steps of the process of a rank, before it imports torch or uses it."""

from __future__ import annotations

import faulthandler
import os
import signal

from ddp_perf.system.host.parent_death import die_with_parent
from ddp_perf.worker.report import STACK_SIGNAL, RankFiles


def set_up_rank(files: RankFiles, parent: int) -> None:
    """Let this process end with ``parent`` and at SIGTERM, and write output and stacks to files."""
    die_with_parent(parent)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # the server ignores it
    if os.getpgrp() != os.getpid():
        os.setpgid(0, 0)  # so that all that this rank starts can be killed with it
    _redirect_output(files)
    stacks = os.open(files.stacks, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    faulthandler.register(STACK_SIGNAL, file=stacks, all_threads=True)


def _redirect_output(files: RankFiles) -> None:
    """Replace the output descriptors, to which C++ and child processes write, too."""
    output = os.open(files.output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
