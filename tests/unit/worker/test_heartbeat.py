"""Heartbeats are seen across a fork, each rank's for itself."""

from __future__ import annotations

import os

from ddp_perf.worker.heartbeat import Heartbeats


def test_each_rank_counts_for_itself():
    heartbeats = Heartbeats(3)
    heartbeats.beat(2)
    heartbeats.beat(0)
    heartbeats.beat(2)

    assert heartbeats.read() == [1, 0, 2]


def test_what_was_read_does_not_change_afterwards():
    heartbeats = Heartbeats(1)
    before = heartbeats.read()
    heartbeats.beat(0)

    assert before == [0]


def test_beats_of_a_forked_rank_are_seen_here():
    heartbeats = Heartbeats(2)
    pid = os.fork()
    if pid == 0:
        heartbeats.beat(1)
        os._exit(0)

    assert os.waitpid(pid, 0) == (pid, 0)
    assert heartbeats.read() == [0, 1]
