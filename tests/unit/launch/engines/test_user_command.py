"""Commands that start no server: each error states why. No torch is imported here."""

from __future__ import annotations

import contextlib
import multiprocessing.connection
import os
import sys
from pathlib import Path

import pytest

from ddp_perf.errors import LaunchError
from ddp_perf.launch import rank_server
from ddp_perf.launch.engines.machine import UserCommand, command_words
from ddp_perf.launch.interpreter import package_directory
from ddp_perf.launch.protocol import PROTOCOL, Channel
from ddp_perf.launch.server_launcher import ServerLauncher
from tests.packages import copied_package

SERVER = ["python3", "-m", "ddp_perf.launch.server"]
PATH = f"{Path(sys.executable).parent}:{os.environ['PATH']}"


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("{command}", SERVER),
        ("docker run -i 'my image' {command}", ["docker", "run", "-i", "my image", *SERVER]),
        ("sh -c 'cd /x && {command}'", ["sh", "-c", f"cd /x && {' '.join(SERVER)}"]),
    ],
)
def test_the_server_takes_the_place_of_the_placeholder(command, words):
    assert command_words(command) == words


@pytest.mark.parametrize(
    ("command", "why"),
    [("docker run image", "there is no {command} in it"), ("sh -c '{command}", "No closing quot")],
)
def test_a_text_that_cannot_start_a_server_is_refused_before_anything_runs(command, why):
    with pytest.raises(LaunchError, match=why):
        UserCommand(command)


def refusal(command, *, package=None):
    environ = {**os.environ, "PATH": PATH}
    engine = UserCommand(command, environ=environ, package=package)
    with contextlib.closing(ServerLauncher(engine)) as launcher:
        with pytest.raises(LaunchError) as caught:
            launcher.runtime()
        return str(caught.value)


def test_a_command_that_is_not_there():
    assert refusal("/no/such/docker run {command}") == (
        "the command of the side (/no/such/docker …) cannot be started: No such file or directory"
    )


@pytest.mark.parametrize("before_the_request", [False, True])
@pytest.mark.parametrize("stream", [1, 2])
def test_a_command_that_fails_shows_its_last_lines(stream, before_the_request, monkeypatch):
    send = Channel.send_line

    def send_late(channel, line):
        """Wait until the shell has ended, which closes the pipe."""
        assert multiprocessing.connection.wait([channel.fileno()])
        channel.noise.clear()
        with contextlib.suppress(EOFError):
            while True:
                channel.read()
        send(channel, line)

    if before_the_request:
        monkeypatch.setattr(Channel, "send_line", send_late)

    said = refusal(
        f"sh -c 'echo first >&{stream}; echo no such image >&{stream}; exit 7' {{command}}"
    )

    assert said == (
        "the command of the side (sh …) did not start: exit code 7: first | no such image"
    )


@pytest.fixture
def bare(tmp_path):
    """A PATH whose python3 has the standard library alone."""
    directory = tmp_path / "bin"
    directory.mkdir()
    python = directory / "python3"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n', encoding="utf-8")
    python.chmod(0o755)
    return f"{directory}:/usr/bin:/bin"


def test_a_command_without_the_package(bare):
    said = refusal(f"env -i PATH={bare} sh -c 'cd / && {{command}}'")

    first, remedy = said.splitlines()
    assert "exit code 1" in first
    assert "No module named 'ddp_perf'" in first
    assert remedy.startswith(f"remedy: mount {package_directory()}/ddp_perf there")


def test_an_interpreter_without_what_ranks_need(bare):
    said = refusal(f"env PATH={bare} {{command}}")

    assert "lacks what ranks need: " in said
    assert "-m pip install 'torch>=" in said


def test_a_package_with_another_version_of_the_protocol(tmp_path):
    package = copied_package(
        tmp_path, "launch/protocol.py", f"PROTOCOL = {PROTOCOL}", "PROTOCOL = 99"
    )

    said = refusal("sh -c 'cd / && {command}'", package=package)

    first, remedy = said.splitlines()
    assert f"({package_directory()}) starts ranks by version {PROTOCOL} of" in first
    assert "has version 99" in first
    assert remedy.startswith("remedy: run the newer ddp_perf")


def test_a_command_that_closes_the_standard_input():
    said = refusal("sh -c '{command} </dev/null'")

    assert said.endswith("closes the standard input: docker run needs -i")


def test_a_command_that_never_answers_is_ended(monkeypatch):
    monkeypatch.setattr(rank_server, "START_S", 0.5)
    monkeypatch.setattr(rank_server, "_TERM_S", 0.5)
    monkeypatch.setattr(rank_server, "_EOF_S", 0.5)

    said = refusal("sh -c 'echo pulling >&2; exec sleep 600' {command}")

    assert said == ("the command of the side (sh …) did not start: no answer in 0 s: pulling")


def test_the_command_runs_in_the_working_directory_of_its_side(tmp_path):
    engine = UserCommand("sh -c 'pwd >&2; exit 7' {command}", working_directory=tmp_path)

    with (
        contextlib.closing(ServerLauncher(engine)) as launcher,
        pytest.raises(LaunchError) as caught,
    ):
        launcher.runtime()

    assert str(caught.value).endswith(f"exit code 7: {tmp_path}")
