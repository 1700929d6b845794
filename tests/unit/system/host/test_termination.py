"""SIGTERM and SIGHUP interrupt a block once."""

from __future__ import annotations

import os
import signal
import sys
import threading
import weakref

import pytest

from ddp_perf.system.host.termination import sigterm_calls


class InterruptedByTest(BaseException):
    pass


def interrupt():
    raise InterruptedByTest


@pytest.fixture(autouse=True)
def earlier():
    """The earlier handler of both signals, which counts its calls."""
    seen = []

    def count(number, frame):
        seen.append(number)

    before = {number: signal.signal(number, count) for number in (signal.SIGTERM, signal.SIGHUP)}
    yield seen
    for number, handler in before.items():
        signal.signal(number, handler)


def terminate(number=signal.SIGTERM):
    os.kill(os.getpid(), number)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_within_the_block_interrupts_it(number, earlier):
    with pytest.raises(InterruptedByTest), sigterm_calls(interrupt):
        terminate(number)
    assert earlier == []

    terminate(number)
    assert earlier == [number]


def test_the_earlier_handler_is_called_before_and_after_the_block(earlier):
    terminate()
    with sigterm_calls(interrupt):
        pass
    terminate()

    assert earlier == [signal.SIGTERM] * 2


def test_a_block_that_was_interrupted_restores_the_earlier_handler(earlier):
    with pytest.raises(InterruptedByTest), sigterm_calls(interrupt):
        terminate()
    terminate()

    assert earlier == [signal.SIGTERM]


def test_a_second_sigterm_ends_the_process_at_once(earlier):
    dispositions = []

    def note():
        dispositions.append(signal.getsignal(signal.SIGTERM))
        raise InterruptedByTest

    with pytest.raises(InterruptedByTest), sigterm_calls(note):
        terminate()

    assert dispositions == [signal.SIG_DFL]


def test_a_second_sighup_lets_the_first_one_end_what_runs(earlier):
    done = []

    def end():
        terminate(signal.SIGHUP)
        done.append(True)
        raise InterruptedByTest

    with pytest.raises(InterruptedByTest), sigterm_calls(end):
        terminate(signal.SIGHUP)

    assert (done, earlier) == ([True], [])


def test_an_ignored_sighup_stays_ignored_beside_a_sigterm():
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as under nohup

    with sigterm_calls(interrupt):
        terminate(signal.SIGHUP)
        with pytest.raises(InterruptedByTest):
            terminate()


def test_an_ignored_sigterm_stays_ignored():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)

    with sigterm_calls(interrupt):
        terminate()

    assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN


def test_another_thread_does_not_change_the_handler(earlier):
    handlers = []

    def run():
        with sigterm_calls(interrupt):
            handlers.append(signal.getsignal(signal.SIGTERM))

    before = signal.getsignal(signal.SIGTERM)
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()

    assert handlers == [before]


@pytest.mark.parametrize(
    ("number", "raised"),
    [
        (signal.SIGTERM, InterruptedByTest),
        (signal.SIGHUP, InterruptedByTest),
        (signal.SIGINT, KeyboardInterrupt),
    ],
)
def test_a_signal_that_python_drops_in_a_callback_of_the_collector_is_sent_again(number, raised):
    class Collected:
        pass

    ends = []

    def end(reference):
        terminate(number)
        ends.append(reference)  # never: the signal raises above

    def go_on():
        collected = Collected()
        reference = weakref.ref(collected, end)
        del collected
        assert reference() is None
        threading.Event().wait(60)

    with pytest.raises(raised), sigterm_calls(interrupt):
        go_on()
    assert ends == []


def test_what_else_python_drops_is_told_as_before(monkeypatch):
    dropped = []
    monkeypatch.setattr(sys, "unraisablehook", dropped.append)

    class Collected:
        def __del__(self):
            raise ValueError("no signal")

    with sigterm_calls(interrupt):
        Collected()

    assert [str(each.exc_value) for each in dropped] == ["no signal"]
