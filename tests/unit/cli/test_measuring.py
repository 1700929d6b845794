"""The early end of a command that measures: by Ctrl-C, SIGTERM or SIGHUP, and only once."""

from __future__ import annotations

import os
import signal

import pytest
import typer

from ddp_perf.cli.measuring import AGAIN, endable
from ddp_perf.errors import LaunchError, SideError

SIGNALS = [
    (signal.SIGINT, 130, "interrupted"),
    (signal.SIGTERM, 143, "ended by SIGTERM"),
    (signal.SIGHUP, 143, "ended by SIGTERM"),
]


def code_of(ending, code=0):
    with pytest.raises(typer.Exit) as exited:
        ending.exit(code)
    return exited.value.exit_code


@pytest.fixture(params=SIGNALS, ids=["INT", "TERM", "HUP"])
def a_signal(request):
    """A signal that is not ignored, as a shell in the background and nohup let some be."""
    number = request.param[0]
    usual = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
    before = signal.signal(number, usual)
    yield request.param
    signal.signal(number, before)


def test_a_signal_ends_the_block_and_the_command_goes_on_with_its_code(capsys, a_signal):
    number, code, said = a_signal
    before, reached = signal.getsignal(number), []

    with endable(AGAIN) as ending:
        reached.append(1)
        os.kill(os.getpid(), number)
        reached.append(2)

    assert reached == [1]
    assert capsys.readouterr().err == f"ddp-perf: {said}; run the same command again to go on\n"
    assert code_of(ending) == code
    assert signal.getsignal(number) == before  # a second signal ends the command


def test_a_block_that_ends_by_itself_has_the_code_of_its_result(capsys):
    with endable() as ending:
        pass

    assert (ending.code, code_of(ending, 75)) == (None, 75)
    assert capsys.readouterr().err == ""


def test_a_failure_that_is_noted_has_its_own_code(capsys):
    with endable() as ending:
        ending.note("no memory is left", 75)

    assert code_of(ending, 0) == 75
    assert capsys.readouterr().err == "ddp-perf: no memory is left\n"


def test_an_error_that_leaves_it_undecided_ends_the_block_and_others_end_the_command(capsys):
    with endable(AGAIN, LaunchError) as ending:
        raise LaunchError("no rank starts")

    assert code_of(ending, 0) == 75
    expected = "ddp-perf: no rank starts; run the same command again to go on\n"
    assert capsys.readouterr().err == expected
    with pytest.raises(SideError), endable(AGAIN, LaunchError):
        raise SideError("no such side")
