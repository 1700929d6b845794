"""The end of a rank: when it counts as ended, and when as failed."""

from __future__ import annotations

import multiprocessing
import os
from multiprocessing.connection import Connection
from types import SimpleNamespace

import msgspec
import pytest

from ddp_perf.core.launch import FACTS
from ddp_perf.launch.supervisor.rank import RankProcess
from ddp_perf.worker.report import Heartbeats, RankDone, RankError, RankFiles, RankTimed
from tests.builders import make_case, make_rank_result


class Process:
    """A process that has closed its files, and that the kernel is still removing."""

    pid = 2**22 + 1  # more than the kernel gives
    exitcode = None
    delivers: bool

    def __init__(self, target, args):
        _, channels = args
        self._reports, self._questions = channels.reports, channels.questions
        self.sentinel, end = os.pipe()
        os.close(end)

    def start(self):
        report = RankDone(result=make_rank_result())
        if self.delivers:
            self._reports.send_bytes(msgspec.json.encode(report))

    def join(self, timeout=None):
        raise AssertionError("waits for as long as the kernel takes")


@pytest.fixture
def ending(tmp_path, monkeypatch):
    """A rank whose process has ended but has no exit code yet, and its clock."""

    def start(tier, *, delivers):
        kind = type("Ending", (Process,), {"delivers": delivers})
        context = SimpleNamespace(Pipe=multiprocessing.Pipe, Process=kind)
        clock = SimpleNamespace(now=100.0)
        monkeypatch.setattr("time.monotonic", lambda: clock.now)
        monkeypatch.setattr("time.sleep", lambda seconds: None)
        files = RankFiles(directory=tmp_path, rank=0)
        return RankProcess(context, None, files, tier, Heartbeats(2)), clock

    return start


@pytest.mark.parametrize(("tier", "patience_s"), [("cpu", 5), ("gpu", 30)])
def test_a_result_counts_before_the_kernel_has_removed_the_process(ending, tier, patience_s):
    rank, clock = ending(tier, delivers=True)

    rank.receive()
    assert rank.running
    clock.now += patience_s - 1
    rank.receive()
    assert rank.running
    clock.now += 2
    rank.receive()

    assert not rank.running
    assert not rank.failed
    assert rank.result == make_rank_result()


def test_a_rank_without_a_result_has_failed(ending):
    rank, clock = ending("gpu", delivers=False)

    rank.receive()
    clock.now += 31
    rank.receive()

    assert (rank.running, rank.failed, rank.exit_code) == (False, True, None)


def test_a_rank_that_the_kernel_is_removing_is_not_overdue(ending):
    rank, clock = ending("gpu", delivers=True)
    rank.receive()
    clock.now += 10**6

    assert not rank.overdue(make_case().schedule, clock.now)


@pytest.fixture
def connected(tmp_path, monkeypatch):
    """A rank that runs, the end of its pipe, and a function that lets it end with a code."""
    sent, alive = [], os.pipe()

    class Running(Process):
        delivers = False

        def __init__(self, target, args):
            _, channels = args
            reports = channels.reports
            sent.append(os.dup(reports.fileno()))
            self.sentinel = alive[0]

    def end(code):
        Running.exitcode = code
        os.close(alive[1])

    context = SimpleNamespace(Pipe=multiprocessing.Pipe, Process=Running)
    rank = RankProcess(context, None, RankFiles(directory=tmp_path, rank=0), "cpu", Heartbeats(2))
    return rank, Connection(sent[0], readable=False), end


def times():
    return make_rank_result(structure=None, digest=None)


@pytest.mark.parametrize("code", [-9, 3])
def test_a_rank_that_ends_after_its_times_has_lost_its_facts_alone(connected, code):
    rank, pipe, end = connected
    pipe.send_bytes(msgspec.json.encode(RankTimed(result=times())))
    rank.receive()
    assert (rank.is_timed, rank.has_left, rank.failed) == (True, False, False)

    end(code)
    rank.receive()

    assert (rank.running, rank.has_left, rank.failed) == (False, True, False)
    rank.lost_facts = "it was killed"
    assert rank.result == msgspec.structs.replace(
        times(), missing=dict.fromkeys(FACTS, "it was killed")
    )


def test_a_rank_that_ends_after_its_whole_result_has_lost_nothing(connected):
    """Over NCCL it waits for a rank that has left until it is ended."""
    rank, pipe, end = connected
    for message in (RankTimed(result=times()), RankTimed(result=make_rank_result(), whole=True)):
        pipe.send_bytes(msgspec.json.encode(message))
    rank.lost_facts = "another rank left the examination"

    end(-9)
    rank.receive()

    assert (rank.running, rank.failed) == (False, False)
    assert rank.result == make_rank_result()


def test_a_rank_that_hung_is_not_believed_once_the_ranks_that_it_waited_for_were_ended(connected):
    rank, pipe, end = connected
    pipe.send_bytes(msgspec.json.encode(RankTimed(result=times())))
    rank.receive()
    rank.lost_facts = "hung: the process is sleeping (S)"
    pipe.send_bytes(msgspec.json.encode(RankDone(result=make_rank_result(), left=True)))

    end(0)
    rank.receive()

    assert set(rank.result.missing.values()) == {"hung: the process is sleeping (S)"}
    assert set(rank.result.missing) == set(FACTS)


def test_a_rank_that_reports_a_mistake_of_the_user_after_its_times_has_failed(connected):
    """A collective gave a wrong result, or the ranks of a script train apart."""
    rank, pipe, _ = connected
    error = RankError(detail="wrong", traceback="", at=1.0, peer_lost=False, exit_code=None)
    for message in (RankTimed(result=times()), error):
        pipe.send_bytes(msgspec.json.encode(message))

    rank.receive()

    assert (rank.failed, rank.is_timed) == (True, False)
