"""The witness of each step: CPU time of all threads, and the waits of its own thread."""

from __future__ import annotations

import os
import threading
import time

import pytest

from ddp_perf.worker.timing import clock
from ddp_perf.worker.timing.clock import NoWitness, StepWitness

BURNT_S = 0.02


@pytest.fixture
def kernel(tmp_path, monkeypatch):
    """``kernel(waited_ns)``: the kernel's count of this thread's waits from now on, or its text."""
    path = tmp_path / "schedstat"
    monkeypatch.setattr(clock, "_WAITS", path)

    def count(waits):
        path.write_text(waits if isinstance(waits, str) else f"123456 {waits} 789\n")

    return count


def marked(kernel, *each):
    """Return the witness of marks at each of these counts."""
    kernel(each[0])
    steps = StepWitness()
    for waits in each:
        kernel(waits)
        steps.mark()
    steps.close()
    return steps


def test_the_wait_of_a_step_lies_between_its_marks(kernel):
    steps = marked(kernel, 5_000_000, 5_000_000, 25_000_000, 25_500_000)

    assert steps.waited_s() == pytest.approx([0.0, 0.02, 0.0005])


def test_a_count_that_grows_in_length_is_read_whole(kernel):
    """The file is read at its begin each time, and a count may have twenty figures."""
    steps = marked(kernel, 9, 10**19, 10**19 + 10**9)

    assert steps.waited_s()[1] == pytest.approx(1.0, rel=1e-5)


def test_waits_that_the_kernel_does_not_count_are_unknown(kernel):
    assert marked(kernel, "0 0 0\n", "0 0 0\n").waited_s() == []


def test_waits_that_are_not_counted_at_one_mark_are_unknown(kernel):
    assert marked(kernel, 5, "0 0 0\n", 7).waited_s() == []


def test_a_system_without_the_file_has_cpu_time_and_no_waits(kernel):
    steps = StepWitness()  # the kernel has written nothing yet
    steps.mark()
    steps.mark()
    steps.close()

    assert steps.waited_s() == []
    assert len(steps.cpu_s()) == 1


def test_waits_that_are_not_to_be_read_are_unknown(kernel):
    kernel(0)
    before = set(os.listdir("/proc/self/fd"))
    steps = StepWitness(waits=False)
    assert set(os.listdir("/proc/self/fd")) == before  # the file is not even opened
    for waits in (0, 10**9):
        kernel(waits)
        steps.mark()
    steps.close()

    assert steps.waited_s() == []
    assert len(steps.cpu_s()) == 1


def test_no_witness_marks_steps_without_cpu_time_and_waits():
    steps = NoWitness()
    for _ in range(3):
        steps.mark()
    steps.close()

    assert (steps.cpu_s(), steps.waited_s()) == ([], [])


def test_the_cpu_time_of_a_step_is_that_of_the_process(monkeypatch, kernel):
    readings = iter([0, 20_000_000, 21_000_000])
    monkeypatch.setattr(time, "process_time_ns", lambda: next(readings))

    assert marked(kernel, 0, 0, 0).cpu_s() == [0.02, 0.001]


def burn():
    until = time.thread_time() + BURNT_S
    while time.thread_time() < until:
        pass


def test_the_cpu_time_of_a_step_contains_other_threads_and_no_sleep():
    steps = StepWitness()
    steps.mark()
    thread = threading.Thread(target=burn)
    thread.start()
    thread.join()
    steps.mark()
    time.sleep(2 * BURNT_S)
    steps.mark()
    steps.close()

    busy_s, asleep_s = steps.cpu_s()
    assert busy_s >= BURNT_S
    assert asleep_s < BURNT_S


def test_the_marks_remain_after_the_file_is_closed(kernel):
    before = set(os.listdir("/proc/self/fd"))
    steps = marked(kernel, 0, 10**6)
    steps.close()  # a second call does nothing

    assert steps.waited_s() == [0.001]
    assert set(os.listdir("/proc/self/fd")) == before


def test_marks_need_two_for_a_step(kernel):
    steps = marked(kernel, 0)

    assert (steps.cpu_s(), steps.waited_s()) == ([], [])
