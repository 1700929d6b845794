"""Which rank a failed launch names, and that every rank is ended."""

from __future__ import annotations

import multiprocessing
from types import SimpleNamespace

import pytest

from ddp_perf.core.launch import PEER_HUNG, PEER_LEFT, LaunchRequest
from ddp_perf.launch.protocol import NodeLaunch
from ddp_perf.launch.supervisor import supervise, watch
from ddp_perf.worker.report import RankError
from tests.builders import make_case, make_failure, make_rank_result


class ScriptedRank:
    """A rank that reports when it is told to: a report lies in its pipe until it is received."""

    def __init__(self, files):
        self.rank = files.rank
        self.files = files
        self.report = self.exit_code = self.ended_at = None
        self.ended = []
        self.reports, self._reporter = multiprocessing.Pipe(duplex=False)
        self.sentinel, self._alive = multiprocessing.Pipe(duplex=False)
        self.when_received = lambda: None
        self.is_overdue = self.hangs = self.is_timed = self.has_left = False
        self.lost_facts = None

    @property
    def running(self):
        return self.ended_at is None

    @property
    def failed(self):
        return isinstance(self.report, RankError)

    @property
    def is_symptom(self):
        return self.report.peer_lost

    @property
    def result(self):
        return make_rank_result(self.rank)

    def note_progress(self, progress, now):
        pass

    def overdue(self, schedule, now):
        return self.is_overdue

    def send(self, detail, *, at, peer_lost):
        self._reporter.send(
            RankError(detail=detail, traceback="", at=at, peer_lost=peer_lost, exit_code=None)
        )

    def receive(self):
        if self.report is None and self.reports.poll():
            self.report = self.reports.recv()
            self.when_received()

    def terminate(self):
        self.ended.append("terminate")

    def kill(self):
        self.ended.append("kill")
        self.ended_at = 1.0

    def close(self):
        self.ended.append("close")
        for end in (self.reports, self._reporter, self.sentinel, self._alive):
            end.close()


@pytest.fixture
def launch(tmp_path, monkeypatch):
    """``launch(script, …)`` runs two ranks of a case of so many nodes; ``script(ranks)`` makes them
    report. Returns the answer and the ranks."""
    ranks = []

    def run(script, alive=lambda: None, nodes=1):
        def start(context, run, files, tier, heartbeats):
            ranks.append(ScriptedRank(files))
            if len(ranks) == 2:
                script(ranks)
            return ranks[-1]

        monkeypatch.setattr(supervise, "RankProcess", start)
        request = LaunchRequest(case=make_case(world_size=2 * nodes, nodes=nodes), round=0)
        reading, writing = multiprocessing.Pipe()
        driver = SimpleNamespace(fileno=reading.fileno, beat=alive, check=lambda: None)
        with reading, writing:
            return supervise.run_launch(
                NodeLaunch(request=request, id="one"), tmp_path, driver, elsewhere=True
            ), ranks

    return run


def test_a_rank_that_fails_first_is_named_though_its_peer_reports_first(launch):
    """Rank 1 lost its peer and reports it at once; rank 0, the cause, is slower to report."""

    def script(ranks):
        cause, first = ranks
        first.when_received = lambda: cause.send("out of memory", at=1.0, peer_lost=False)
        first.send("connection closed by peer", at=2.0, peer_lost=True)

    answer, _ = launch(script)

    failure = answer.failure
    assert (failure.rank, failure.detail) == (0, "out of memory")


def test_every_rank_is_ended_after_a_failure(launch):
    answer, ranks = launch(lambda ranks: ranks[1].send("it raised", at=1.0, peer_lost=False))

    assert answer.failure.rank == 1
    assert [rank.ended for rank in ranks] == [["terminate", "kill", "close"]] * 2


@pytest.fixture
def noted(monkeypatch):
    """The signs of life, the waits and the descriptions of a launch, in their order."""
    noted = []
    failure = make_failure(make_case())
    for name in ("_wait", "describe_failure", "describe_hang"):
        original = getattr(watch, name)

        def note(*arguments, name=name, original=original):
            noted.append(name)
            return original(*arguments) if name == "_wait" else failure

        monkeypatch.setattr(watch, name, note)
    return noted


def test_a_sign_of_life_precedes_each_wait_and_the_description_of_a_failure(launch, noted):
    launch(
        lambda ranks: ranks[1].send("it raised", at=1.0, peer_lost=False),
        alive=lambda: noted.append("alive"),
    )

    end = noted.index("describe_failure")
    assert end >= 5  # one wait for the failed rank, and at least one for the other
    assert noted[: end + 1 : 2] == ["alive"] * (end // 2 + 1)
    assert set(noted[1:end:2]) == {"_wait"}


def test_a_sign_of_life_precedes_the_description_of_a_hang(launch, noted):
    def script(ranks):
        ranks[0].is_overdue = True

    launch(script, alive=lambda: noted.append("alive"))

    assert noted[: noted.index("describe_hang") + 1] == ["alive", "_wait", "alive", "describe_hang"]


def test_a_hang_in_the_examination_of_timed_ranks_is_no_failure(launch, monkeypatch):
    monkeypatch.setattr(
        watch, "hung_examination", lambda request, ranks: ([ranks[1]], "hung: the process is (T)")
    )

    def script(ranks):
        for rank in ranks:
            rank.is_timed = rank.is_overdue = True

    answer, ranks = launch(script)

    assert answer.failure is None
    assert len(answer.results) == 2
    assert [rank.lost_facts for rank in ranks] == [PEER_HUNG, "hung: the process is (T)"]
    assert [rank.hangs for rank in ranks] == [False, True]
    assert [rank.ended for rank in ranks] == [["terminate", "kill", "close"]] * 2


@pytest.mark.slow
def test_ranks_do_not_wait_for_one_that_has_left_the_examination(launch, monkeypatch):
    """Over NCCL nobody notices that a rank has ended: a collective just does not end."""
    now = 100.0

    def later():
        nonlocal now
        now += 4

    def script(ranks):
        for rank in ranks:
            rank.is_timed = True
        ranks[0].has_left, ranks[0].ended_at = True, now

    monkeypatch.setattr(watch, "time", SimpleNamespace(monotonic=lambda: now))
    answer, ranks = launch(script, alive=later)

    assert answer.failure is None
    assert len(answer.results) == 2
    assert ranks[1].lost_facts == PEER_LEFT


def test_a_rank_that_hangs_without_times_fails_though_another_has_left(launch, noted):
    def script(ranks):
        ranks[0].is_timed, ranks[0].has_left = True, True
        ranks[1].is_overdue = True

    answer, _ = launch(script)

    assert answer.failure is not None
    assert noted[-1] == "describe_hang"
