"""The progress of a session: a live line on a terminal, and in a log as few lines as needed."""

from __future__ import annotations

import contextlib
import sys

import msgspec
import pytest

from ddp_perf.core.launch import LaunchRequest
from ddp_perf.plugin.progress import TerminalProgress
from tests.builders import make_case, make_failure, make_launch
from tests.terminals import Screen

A, B = (make_case(id=name) for name in "ab")


class Config:
    """A configuration whose terminal is ``stream``. Without capture, that is also `sys.stdout`."""

    def __init__(self, stream, *, verbosity=0):
        self.pluginmanager = self
        self.getplugin = {"terminalreporter": self, "capturemanager": self}.get
        self.get_verbosity = lambda: verbosity
        self.global_and_fixture_disabled = lambda: contextlib.redirect_stdout(stream)
        self._stream = stream

    def write(self, text, *, flush):
        assert flush  # a log shows a line when it is written
        assert sys.stdout is self._stream
        self._stream.write(text)


class Session:
    """Launches on a clock that only they advance; ``lines``: what the session has written."""

    def __init__(self, stream, **config):
        self.now = 1000.0
        self.progress = TerminalProgress(Config(stream, **config), clock=lambda: self.now)
        self.stream = stream

    def plan(self, *cases, count):
        return [LaunchRequest(case=case, round=r) for r in range(count) for case in cases]

    def begin(self, plan, expected_s=None):
        self.progress.begin("quick", plan, expected_s or {})

    def launch(self, plan, *, step_s=0.010, wall_s=4.0):
        for request in plan:
            self.now += wall_s
            launch = make_launch(request.case, request.round, step_s=step_s)
            self.progress.launched(request, msgspec.structs.replace(launch, wall_s=wall_s))

    def fail(self, request):
        self.progress.launched(request, make_failure(request.case, request.round))

    @property
    def lines(self):
        begin, *lines = self.stream.getvalue().splitlines()
        assert begin == ""  # pytest has written the results of tests
        return lines


@pytest.fixture
def log():
    """A session whose output is no terminal."""
    stream = Screen()
    stream.isatty = lambda: False
    session = Session(stream)
    yield session
    session.progress.end()


@pytest.fixture
def terminal(monkeypatch):
    """A terminal, and a session on it."""
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    screen = Screen()
    session = Session(screen)
    yield screen, session
    session.progress.end()


class TestLog:
    def test_a_case_is_one_line_when_its_launches_are_finished(self, log):
        plan = log.plan(A, B, count=3)

        log.begin(plan)
        log.launch(plan[:4])
        assert log.lines == ["ddp: quick: 6 launches, for how long a stored session will show"]

        log.launch(plan[4:5], step_s=0.014)
        log.launch(plan[5:])
        assert log.lines[1:] == [
            "ddp: a: 10.00 ms a step (10.00 to 14.00 in 3 launches), about 4 s left",
            "ddp: b: 10.00 ms a step (in 3 launches)",
        ]

    def test_the_baseline_times_the_launches_before_the_first_one(self, log):
        plan = log.plan(A, B, count=3)

        log.begin(plan, {"a": 20.0, "b": 40.0})

        assert log.lines == ["ddp: quick: 6 launches, about 3 min"]

    def test_a_failure_is_written_at_once_and_its_case_is_not_waited_for(self, log):
        plan = log.plan(A, B, count=3)

        log.begin(plan, {"a": 20.0, "b": 30.0})
        log.fail(plan[0])

        (line,) = log.lines[1:]
        assert line == f"ddp: FAILED: {make_failure(A)}, about 90 s left"
        assert log.progress.how_far() == "after 1 of 4 launches of quick"

    def test_a_silent_minute_ends_in_one_line(self, log):
        plan = log.plan(A, B, count=10)

        log.begin(plan)
        log.launch(plan[:14])  # 56 s
        assert len(log.lines) == 1
        log.launch(plan[14:18])

        assert log.lines[1:] == ["ddp: quick: 15 of 20 launches, about 20 s left"]

    def test_further_launches_are_one_line_and_end_in_one_line_of_their_case(self, log):
        plan, more = log.plan(A, B, count=3), log.plan(B, count=2)

        log.begin(plan)
        log.launch(plan)
        log.progress.extend(more, "1 of 2 cases are undecided: 2 more launches", judged=True)
        log.launch(more, step_s=0.012)

        assert log.lines[3:] == [
            "ddp: quick: 1 of 2 cases are undecided: 2 more launches, about 8 s",
            "ddp: b: 10.00 ms a step (10.00 to 12.00 in 5 launches)",
        ]

    def test_launches_that_are_not_judged_have_a_line_of_their_own(self, log):
        plan, more = log.plan(A, count=3), log.plan(A, count=2)

        log.begin(plan)
        log.launch(plan)
        log.progress.extend(more, "2 more launches to explain a", judged=False)
        log.launch(more, step_s=0.012)

        assert log.lines[1:] == [
            "ddp: a: 10.00 ms a step (in 3 launches)",
            "ddp: quick: 2 more launches to explain a, about 8 s",
            "ddp: a: 12.00 ms a step (in 2 launches)",
        ]

    def test_a_quiet_session_writes_only_why_it_waits(self, log):
        quiet = Session(log.stream, verbosity=-1)
        plan = quiet.plan(A, count=1)

        quiet.progress.warn("waiting for another session")
        quiet.begin(plan)
        quiet.launch(plan)
        quiet.progress.end()

        assert quiet.lines == ["ddp: waiting for another session"]


class TestTerminal:
    def test_one_live_line_shows_the_case_and_the_time_left_and_disappears(self, terminal):
        screen, session = terminal
        plan = session.plan(A, B, count=2)

        session.begin(plan, {"a": 3.0, "b": 5.0})
        assert screen.lines[2].endswith(" 0/4, about 16 s left")
        session.launch(plan[:1])
        assert screen.lines[2].endswith(" 1/4, about 14 s left, a: 10.00 ms a step")
        session.launch(plan[1:])
        assert screen.lines[2].endswith(" 4/4, b: 10.00 ms a step")
        assert len(screen.lines) == 3

        session.progress.end()
        assert screen.lines == ["", "ddp: quick: 4 launches, about 16 s"]

    def test_failures_and_further_launches_stay_above_the_live_line(self, terminal):
        screen, session = terminal
        plan, more = session.plan(A, B, count=2), session.plan(B, count=1)

        session.begin(plan)
        session.fail(plan[0])
        session.launch([plan[1], plan[3]])
        session.progress.extend(more, "1 of 2 cases are undecided: 1 more launch", judged=True)

        assert screen.lines[2:4] == [
            f"ddp: FAILED: {make_failure(A)}",
            "ddp: quick: 1 of 2 cases are undecided: 1 more launch, about 4 s",
        ]
        assert screen.lines[4].endswith(" 3/4, about 4 s left")
        session.progress.end()
        assert len(screen.lines) == 4

    def test_a_dumb_terminal_gets_the_lines_of_a_log(self, terminal, monkeypatch):
        screen, session = terminal
        monkeypatch.setenv("TERM", "dumb")
        plan = session.plan(A, count=1)

        session.begin(plan)
        session.launch(plan)

        assert session.lines[1:] == ["ddp: a: 10.00 ms a step (in 1 launch)"]
        assert "\x1b" not in screen.getvalue()


class TestHowFar:
    def test_a_session_without_a_suite_is_before_its_first_launch(self, log):
        assert log.progress.how_far() == "before the first launch ended"

    def test_each_suite_is_named_before_and_after_its_first_launch(self, log):
        plan = log.plan(A, count=3)
        for suite in ("quick", "full"):
            log.progress.begin(suite, plan, {})
            assert log.progress.how_far() == f"before the first launch of {suite} ended"

            log.launch(plan[:1])
            assert log.progress.how_far() == f"after 1 of 3 launches of {suite}"
            log.progress.end()
