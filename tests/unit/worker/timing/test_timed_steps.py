"""The timed steps of a launch go on until enough of them are clean on all ranks."""

from __future__ import annotations

import gc

import msgspec
import pytest
import torch
import torch.distributed as dist

from ddp_perf.core.gpu import GpuLoad
from ddp_perf.core.launch import WarmUp
from ddp_perf.worker.report import Phase
from ddp_perf.worker.steps.protocol import StepsEndedError, follow_plan
from ddp_perf.worker.timing import timed_steps
from ddp_perf.worker.timing.clock import HostClock
from ddp_perf.worker.timing.timed_steps import timed_on_gpu, timed_schedule
from tests.builders import make_case

CPU, GPU = torch.device("cpu"), torch.device("cuda", 0)
LONG_S = 0.5  # each step takes longer than the one before, and all of them less than this


def never(number):
    return False


def always(number):
    return True


def until(last):
    """Return the plan of a rank that waits in each step up to this one."""
    return lambda number: number <= last


class Steps:
    """Steps that do nothing, count, and keep the phases."""

    collects_garbage = False

    def __init__(self):
        self.done, self.phases = 0, []
        self.collected = set()  # whether garbage was collected, in any step

    def step(self):
        self.done += 1
        self.collected.add(gc.isenabled())

    def beat(self):
        pass

    def enter(self, phase):
        self.phases.append(phase)


class Clock(HostClock):
    """A clock on which step n takes n ms."""

    def __init__(self, steps):
        self._steps, self._marks = steps, []

    def mark(self):
        self._marks.append(self._steps.done)

    def intervals_s(self, on_step):
        return [number / 1e3 for number in self._marks[1:]]


class Witness:
    """A witness of steps that wait as planned. It does not know the waits if the plan is None."""

    def __init__(self, steps, plan, waits):
        self._steps, self._plan, self._marks = steps, plan if waits else None, []
        self.closed = False

    def mark(self):
        self._marks.append(self._steps.done)

    def close(self):
        self.closed = True

    def cpu_s(self):
        return [number / 2e3 for number in self._marks[1:]]

    def waited_s(self):
        if self._plan is None:
            return []
        return [LONG_S * self._plan(number) for number in self._marks[1:]]


def _follow(plan, step):
    """Follow the plan as a script does, whose end is thrown into the plan."""
    over = False
    while True:
        try:
            plan.throw(StepsEndedError()) if over else next(plan)
            step()
        except StepsEndedError:
            if over:
                raise
            over = True
        except StopIteration as end:
            return end.value


@pytest.fixture
def timed(monkeypatch):
    """``timed(plan, …)``: the timed steps of a rank, and the number of steps that it took.

    ``plan(number)`` and ``others(number)`` are whether this rank and another one wait long in the
    step of this number, from 1 on with the warm-ups. Each of them computes with ``threads``. The
    training is over after step ``end``. It collects garbage in a step ``as_script``. On a GPU a
    step takes ``step_s`` after the warm-up, and further ones may be owed.
    """

    def run(
        plan,
        *,
        others=None,
        measured=10,
        warmup=2,
        device=CPU,
        threads=1,
        end=None,
        as_script=False,
        step_s=1.0,
        again=0,
        owes_steps=False,
    ):
        steps, witnesses = Steps(), []

        def witness(*, waits):
            witnesses.append(Witness(steps, plan, waits))
            return witnesses[-1]

        def all_reduce(disturbed, operation):
            assert operation is dist.ReduceOp.MAX
            assert steps.phases[-1] is Phase.AFTER, "a rank that hangs here is in no step"
            if others is not None:
                theirs = [others(warmup + 1 + i) for i in range(len(disturbed))]
                disturbed.logical_or_(torch.tensor(theirs))

        monkeypatch.setattr(dist, "barrier", lambda: None)
        monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)
        monkeypatch.setattr(dist, "all_reduce", all_reduce)
        monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
        monkeypatch.setattr(timed_steps, "step_clock", lambda device, count: Clock(steps))
        monkeypatch.setattr(timed_steps, "StepWitness", witness)
        monkeypatch.setattr(steps, "collects_garbage", as_script)
        collects = gc.isenabled()
        schedule = msgspec.structs.replace(
            make_case().schedule, steps=warmup + measured, warmup=warmup
        )

        def step():
            if steps.done == end:
                raise StepsEndedError
            steps.step()

        plan_of_steps = timed_schedule(steps, schedule, device)
        if device is GPU:
            after = WarmUp(steps=30, steady=True, again=again, step_s=step_s)
            plan_of_steps = timed_on_gpu(
                steps, schedule, device, after=after, read_load=GpuLoad, owes_steps=owes_steps
            )
        found = _follow(plan_of_steps, step)
        assert all(one.closed for one in witnesses)
        assert steps.collected == {steps.collects_garbage and collects}
        return found, steps.done

    return run


@pytest.mark.parametrize("plan", [never, until(2), None], ids=["clean", "warm-ups", "no witness"])
def test_steps_that_are_clean_or_unwitnessed_are_those_of_the_schedule(timed, plan):
    found, done = timed(plan)

    assert done == 12
    assert found.warmup_s == (0.001, 0.002)
    assert found.step_s == tuple(number / 1e3 for number in range(3, 13))
    assert found.cpu_s == tuple(number / 2e3 for number in range(3, 13))
    assert found.waited_s == (() if plan is None else (0.0,) * 10)


def test_disturbed_steps_are_followed_by_as_many_steps_until_enough_are_clean(timed):
    """Of the first ten steps five are disturbed, so ten more follow: 15 clean ones."""
    found, done = timed(until(7))

    assert done == 22
    assert found.warmup_s == (0.001, 0.002)
    assert found.step_s == tuple(number / 1e3 for number in range(3, 23))
    assert found.cpu_s == tuple(number / 2e3 for number in range(3, 23))
    assert found.waited_s == (LONG_S,) * 5 + (0.0,) * 15


def test_a_machine_that_stays_busy_ends_the_steps_at_five_times_the_schedule(timed):
    found, done = timed(always)

    assert done == 2 + 5 * 10
    assert len(found.step_s) == len(found.cpu_s) == len(found.waited_s) == 50


@pytest.mark.parametrize(
    ("disturbed", "steps"),
    [(20, 40), (21, 80)],
    ids=["twenty clean ones", "nineteen clean ones"],
)
def test_twenty_clean_steps_are_enough_for_any_schedule(timed, disturbed, steps):
    found, _ = timed(until(2 + disturbed), measured=40)

    assert len(found.step_s) == steps


@pytest.mark.parametrize(
    ("mine", "theirs", "steps"),
    [
        (never, until(7), 20),
        (until(7), never, 20),
        (until(7), until(7), 20),  # the same steps: as many clean ones
        (lambda number: number % 2 == 0, lambda number: number % 2, 50),  # no step is clean
    ],
    ids=["the other rank", "this rank", "both", "in turn"],
)
def test_a_step_is_clean_only_if_no_rank_waited_long(timed, mine, theirs, steps):
    found, _ = timed(mine, others=theirs)

    assert len(found.step_s) == steps


def test_a_rank_without_a_witness_goes_on_with_one_that_is_disturbed(timed):
    found, _ = timed(None, others=until(7))

    assert len(found.step_s) == 20
    assert found.waited_s == ()


def test_the_waits_of_one_thread_of_several_are_no_witness(timed):
    """A step may wait for another one."""
    found, done = timed(always, threads=2)

    assert done == 12
    assert found.waited_s == ()
    assert len(found.cpu_s) == 10


@pytest.mark.parametrize(
    ("step_s", "measured"),
    [(0.5, 10), (0.25, 10), (0.1, 25), (0.0015, 1667), (0.00002, 2000)],
)
def test_steps_on_a_gpu_last_as_long_as_a_reading_needs_and_are_at_least_the_schedules(
    timed, step_s, measured
):
    """All ranks have the same typical step, so they need to agree on nothing more."""
    found, done = timed(always, device=GPU, step_s=step_s)

    assert done == 2 + measured
    assert len(found.step_s) == measured
    assert len(found.warmup_s) == 2
    assert found.cpu_s == found.waited_s == ()


@pytest.mark.parametrize(("end", "kept"), [(12, 10), (20, 18)])
def test_a_script_on_a_gpu_that_is_over_before_keeps_the_steps_that_it_has(timed, end, kept):
    found, _ = timed(never, device=GPU, step_s=0.01, end=end)

    assert len(found.step_s) == kept


def test_a_script_on_a_gpu_keeps_the_steps_that_are_owed_after_the_timed_ones(timed):
    found, done = timed(never, device=GPU, step_s=0.01, owes_steps=True)

    assert (len(found.step_s), done) == (10, 12)


def test_steps_on_a_gpu_follow_further_ones_after_the_readings(timed):
    try:
        gc.disable()  # garbage is collected in them
        found, done = timed(never, device=GPU, step_s=0.5, again=3)
    finally:
        gc.enable()

    assert done == 3 + 2 + 10
    assert found.warmup_s == (0.004, 0.005)


def test_a_script_on_a_gpu_with_less_steps_than_the_schedule_is_over_too_early(timed):
    with pytest.raises(StepsEndedError):
        timed(never, device=GPU, step_s=0.01, end=11)


@pytest.mark.parametrize("as_script", [True, False])
@pytest.mark.parametrize("collects", [True, False])
def test_garbage_is_collected_as_before_though_the_training_is_over_in_further_steps(
    timed, collects, as_script
):
    try:
        if not collects:  # as a script that collects by itself
            gc.disable()
        found, done = timed(always, end=17, as_script=as_script)

        assert gc.isenabled() is collects
    finally:
        gc.enable()
    assert done == 17
    assert len(found.step_s) == 10


def test_a_script_that_ends_its_collections_in_a_timed_step_has_none_afterwards(monkeypatch):
    monkeypatch.setattr(dist, "barrier", lambda: None)
    steps = Steps()
    monkeypatch.setattr(steps, "collects_garbage", True)
    try:
        follow_plan(timed_steps.timed_steps(steps, 2, CPU), gc.disable)

        assert not gc.isenabled()
    finally:
        gc.enable()
