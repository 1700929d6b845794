"""The mark of forks."""

from __future__ import annotations

import os

from ddp_perf.worker.script.steps import ForkMark


def is_set_in_a_fork(mark):
    """Return whether the mark is set in a fork of this process, by its exit code."""
    pid = os.fork()
    if pid == 0:
        os._exit(int(mark.is_fork))
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 1


def test_a_fork_is_marked_and_its_parent_is_not():
    mark = ForkMark()

    assert is_set_in_a_fork(mark)
    assert not mark.is_fork


def test_a_mark_that_a_fork_makes_is_not_set_there():
    pid = os.fork()
    if pid == 0:
        os._exit(int(ForkMark().is_fork))

    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
