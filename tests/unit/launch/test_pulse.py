"""A server without a pulse is given up; one that is only slow is not."""

from __future__ import annotations

import os

import pytest

from ddp_perf.launch.protocol import Pulse, open_pulse_memory


@pytest.fixture
def ends():
    """The server's side and the driver's side."""
    with os.fdopen(open_pulse_memory()) as memory:
        return Pulse(memory.fileno()), Pulse(memory.fileno())


class Answer:
    """An answer that arrives at the given reading; ``between`` is called before each reading."""

    def __init__(self, at_look, between=lambda look: None):
        self.waited_s, self._at_look, self._between = [], at_look, between

    def __call__(self, timeout_s):
        self._between(len(self.waited_s))
        self.waited_s.append(timeout_s)
        return len(self.waited_s) == self._at_look


def test_a_server_with_a_pulse_may_take_any_time(ends):
    server, driver = ends
    answer = Answer(1000, lambda look: server.beat())

    assert driver.goes_on_until(answer, 10.0)


def test_a_server_that_beats_rarely_is_alive(ends):
    server, driver = ends
    answer = Answer(1000, lambda look: server.beat() if look % 5 == 0 else None)

    assert driver.goes_on_until(answer, 10.0)


def test_a_silent_server_is_given_up_after_the_full_patience(ends):
    _, driver = ends
    answer = Answer(None)

    assert not driver.goes_on_until(answer, 10.0)
    assert sum(answer.waited_s) == pytest.approx(10.0)


def test_a_server_that_becomes_silent_is_given_up_after_the_full_patience(ends):
    server, driver = ends
    answer = Answer(None, lambda look: server.beat() if look < 100 else None)

    assert not driver.goes_on_until(answer, 10.0)
    since_the_last_beat_s = sum(answer.waited_s[99:])
    assert 10.0 <= since_the_last_beat_s <= 12.0 + 1e-9


def test_a_beat_of_another_process_is_read(ends):
    server, driver = ends

    def beat(look):
        if (pid := os.fork()) == 0:
            server.beat()
            os._exit(0)
        os.waitpid(pid, 0)

    assert driver.goes_on_until(Answer(20, beat), 10.0)
