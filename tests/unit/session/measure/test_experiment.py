"""The loop that launches what a policy asks for: its order, its end, its servers, and its log."""

from __future__ import annotations

import contextlib
import signal
from collections import Counter

import pytest

from ddp_perf.core.launch import LaunchRequest
from ddp_perf.errors import LaunchError
from ddp_perf.session.measure.experiment import (
    Arm,
    Block,
    Experiment,
    NoLauncher,
    blocks_of,
    next_block,
    open_log,
    pairs_of,
)
from ddp_perf.system.ledger import Entries
from tests.builders import FakeLauncher, make_case, make_failure, make_launch, make_logged

CASE = make_case()


class Served(FakeLauncher):
    """A launcher on a played clock, whose server starts when it is asked and none runs."""

    def __init__(self, clock, *, launch_s=1.0, start_s=0.0, answer=None):
        super().__init__(answer)
        self.clock, self.launch_s, self.start_s = clock, launch_s, start_s
        self.starts, self.ends, self.runs = 0, 0, False

    def runtime(self, case=None):
        if not self.runs:
            self.starts, self.runs = self.starts + 1, True
            self.clock.now += self.start_s
        return super().runtime(case)

    def launch(self, request):
        self.runtime(request.case)
        self.clock.now += self.launch_s
        return super().launch(request)

    def close(self):
        self.ends, self.runs = self.ends + 1, False


class Blocks:
    """A policy of so many blocks with the same arms."""

    def __init__(self, most, **launchers):
        self.most, self.launchers = most, launchers

    def next(self, history):
        number = next_block(history)
        if number >= self.most:
            return None
        request = LaunchRequest(case=CASE, round=0)
        return Block(number, tuple(Arm(n, one, request) for n, one in self.launchers.items()))


class Clock:
    now = 0.0


@pytest.fixture
def clock(monkeypatch):
    played = Clock()
    monkeypatch.setattr("time.monotonic", lambda: played.now)
    return played


def run(policy, *, log=None, until=1e9, on_launch=lambda launch: None, **options):
    log = Entries() if log is None else log
    Experiment(log, seed=1, **options).run(policy, until=until, on_launch=on_launch)
    return log.entries


def test_each_arm_is_the_first_about_equally_often(clock):
    a, b = Served(clock), Served(clock)

    launches = run(Blocks(100, a=a, b=b))

    assert a.asked == b.asked == [(CASE.id, number) for number in range(100)]
    firsts = Counter(first.arm for first in launches[::2])
    assert min(firsts["a"], firsts["b"]) > 30
    assert [one.block for one in launches] == [number for number in range(100) for _ in "ab"]


@pytest.mark.parametrize("arms", ["a", "ab"])
def test_arms_of_one_block_are_paired(clock, arms):
    paired = []

    def answer(request):
        paired.append(request.paired)
        return make_launch(request.case, request.round)

    run(Blocks(2, **{name: Served(clock, answer=answer) for name in arms}))
    assert paired == [arms == "ab"] * 2 * len(arms)


def test_a_launch_is_logged_with_its_figures_or_its_whole_result(clock):
    (figures,) = run(Blocks(1, a=Served(clock)))
    (whole,) = run(Blocks(1, a=Served(clock)), keeps_results=True)

    assert (figures.case_id, figures.arm, figures.block, figures.wall_s) == (CASE.id, "a", 0, 1.0)
    assert figures.values["step_time"] == pytest.approx(0.01)
    assert figures.result is None
    assert whole.result == make_launch(CASE)


def test_no_block_begins_that_is_expected_to_end_too_late(clock):
    launches = run(Blocks(99, a=Served(clock), b=Served(clock, launch_s=3.0)), until=11.0)

    assert len(launches) == 4  # 8 s; a third block would end after 12 s


def test_nothing_is_made_ready_once_the_time_is_over(clock):
    class Late(Blocks):
        def next(self, history):
            clock.now += 3.0  # to install a package, say
            asked.append(clock.now)
            return super().next(history)

    asked = []

    run(Late(99, a=Served(clock)), until=7.0)

    assert asked == [3.0, 7.0]


def test_servers_end_after_so_many_launches_and_start_outside_the_time_of_a_launch(clock):
    a, b = Served(clock, start_s=0.5), Served(clock, start_s=0.5)

    launches = run(Blocks(7, a=a, b=b), launches_a_server=3)

    assert (a.ends, b.ends, a.starts, b.starts) == (2, 2, 3, 3)
    assert {launch.wall_s for launch in launches} == {1.0}


@pytest.mark.parametrize(("start_s", "ends"), [(1.0, 2), (9.0, 0)])
def test_servers_that_start_slowly_for_the_time_that_is_left_stay(clock, start_s, ends):
    a, b = Served(clock, start_s=start_s), Served(clock, start_s=start_s)

    run(Blocks(7, a=a, b=b), launches_a_server=3, until=100.0)

    assert a.ends == ends


def test_a_failed_launch_is_logged_and_the_other_arms_are_launched(clock):
    broken = Served(clock, answer=lambda request: make_failure(request.case, request.round))

    launches = run(Blocks(1, a=broken, b=Served(clock)))

    assert {one.arm: one.failure is None for one in launches} == {"a": False, "b": True}
    assert next(one for one in launches if one.arm == "a").values == {}


def test_a_server_that_does_not_start_ends_the_experiment_or_fails_its_arm(clock):
    policy = Blocks(1, a=NoLauncher(ValueError("no such file")))

    with pytest.raises(LaunchError, match="no such file"):
        run(policy)
    (launch,) = run(policy, may_not_start=True)
    assert (launch.failure.kind, launch.failure.detail) == ("server", "no such file")


def test_a_signal_at_the_end_of_a_launch_waits_until_it_is_logged(clock):
    log = Entries()
    append = log.append

    def signalled(launch):
        signal.raise_signal(signal.SIGINT)
        append(launch)

    log.append = signalled

    with pytest.raises(KeyboardInterrupt):
        run(Blocks(9, a=Served(clock)), log=log)

    assert len(log.entries) == 1


def test_an_experiment_goes_on_from_its_log(clock, tmp_path):
    def interrupt(launch):
        if len(asked) == 5:
            raise KeyboardInterrupt
        asked.append(launch)

    asked = []
    with contextlib.closing(open_log(tmp_path, {"q": "x"}, {})) as log:
        with pytest.raises(KeyboardInterrupt):
            run(Blocks(9, a=Served(clock)), log=log, on_launch=interrupt)
        assert len(log.entries) == 6  # the one that was finished before the interrupt, too

    with contextlib.closing(open_log(tmp_path, {"q": "x"}, {})) as log:
        again = Served(clock)
        run(Blocks(9, a=again), log=log)
        assert [launch.block for launch in log.entries] == list(range(9))
    assert [number for _, number in again.asked] == [6, 7, 8]


def test_pairs_are_of_one_whole_block_and_of_launches_that_did_not_fail():
    torn, failed = make_logged("a", 0, arms=2, step_time=1.0), make_logged("b", 1, arms=2)
    beside = make_logged("a", 1, 1, arms=2, step_time=2.0)
    pair = [make_logged(arm, 2, turn, arms=2, step_time=3.0) for turn, arm in enumerate("ba")]
    second = make_logged("b", 3, 1, arms=2, step_time=5.0)  # the first one was in another run
    history = [torn, failed, beside, torn, second, *pair]

    assert pairs_of(history, "a", "b") == [(pair[1], pair[0])]
    assert [set(block) for block in blocks_of(history)] == [{"a"}, {"a", "b"}]
    assert next_block(history) == 4
    assert next_block([]) == 0
