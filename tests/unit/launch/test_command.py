"""Commands that start no relay: each error states why. No torch is imported here."""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
from pathlib import Path

import msgspec
import pytest
from ddp_perf.launch.command import CommandLauncher, RelayProcess, command_words

from ddp_perf.errors import LaunchError
from ddp_perf.launch import command
from ddp_perf.launch.interpreter import package_directory
from ddp_perf.launch.launcher import Runtime
from ddp_perf.launch.protocol import PROTOCOL, RelayAnswer
from tests.packages import copied_package

RELAY = ["python3", "-m", "ddp_perf.launch.relay"]
PATH = f"{Path(sys.executable).parent}:{os.environ['PATH']}"


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("{command}", RELAY),
        ("docker run -i 'my image' {command}", ["docker", "run", "-i", "my image", *RELAY]),
        ("sh -c 'cd /x && {command}'", ["sh", "-c", f"cd /x && {' '.join(RELAY)}"]),
    ],
)
def test_the_relay_takes_the_place_of_the_placeholder(command, words):
    assert command_words(command) == words


@pytest.mark.parametrize(
    ("command", "why"),
    [("docker run image", "there is no {command} in it"), ("sh -c '{command}", "No closing quot")],
)
def test_a_text_that_cannot_start_a_relay_is_refused_before_anything_runs(command, why):
    with pytest.raises(LaunchError, match=why):
        CommandLauncher(command)


def refusal(command, *, package=None):
    environ = {**os.environ, "PATH": PATH}
    with contextlib.closing(CommandLauncher(command, environ=environ, package=package)) as launcher:
        with pytest.raises(LaunchError) as caught:
            launcher.runtime()
        return str(caught.value)


def test_a_command_that_is_not_there():
    assert refusal("/no/such/docker run {command}") == (
        "the command of the side cannot be started: /no/such/docker: No such file or directory"
    )


@pytest.mark.parametrize("before_the_request", [False, True])
@pytest.mark.parametrize("stream", [1, 2])
def test_a_command_that_fails_shows_its_last_lines(stream, before_the_request, monkeypatch):
    send = RelayProcess._send

    def send_late(relay, data):
        relay._process.wait()
        send(relay, data)

    if before_the_request:
        monkeypatch.setattr(RelayProcess, "_send", send_late)

    said = refusal(
        f"sh -c 'echo first >&{stream}; echo no such image >&{stream}; exit 7' {{command}}"
    )

    assert said == (
        "the command of the side (sh …) started no relay: exit code 7: first | no such image"
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

    assert said.endswith("closes the standard input of the relay: docker run needs -i")


def test_a_command_that_never_answers_is_ended(monkeypatch):
    monkeypatch.setattr(command, "START_S", 0.5)
    monkeypatch.setattr(command, "_GOODBYE_S", 0.5)

    said = refusal("sh -c 'echo pulling >&2; exec sleep 600' {command}")

    assert said == (
        "the command of the side (sh …) started no relay: no answer in 0 s; it was ended: pulling"
    )


def test_the_command_runs_in_the_working_directory_of_its_side(tmp_path):
    launcher = CommandLauncher("sh -c 'pwd >&2; exit 7' {command}", working_directory=tmp_path)

    with contextlib.closing(launcher), pytest.raises(LaunchError) as caught:
        launcher.runtime()

    assert str(caught.value).endswith(f"exit code 7: {tmp_path}")


def test_a_relay_whose_end_was_interrupted_is_ended_by_the_next_call(monkeypatch):
    ends = []

    class Relay:
        def close(self):
            ends.append("close")
            if len(ends) == 1:
                raise KeyboardInterrupt

        def output_tail(self):
            return ""

    launcher = CommandLauncher("{command}")
    monkeypatch.setattr(launcher, "_relay", Relay())

    with pytest.raises(KeyboardInterrupt):
        launcher.close()
    launcher.close()

    assert ends == ["close", "close"]


ONE_ANSWER = """
import sys
from pathlib import Path
from ddp_perf.launch.protocol import framed
from ddp_perf.launch.protocol import own_hello

sys.stdin.readline()
print(framed(own_hello()), flush=True)
sys.stdin.readline()
print(framed(Path(sys.argv[1]).read_bytes()), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def answered(tmp_path):
    """``answered(answer)``: the runtime that a launcher gets from a relay with this one answer."""

    def ask(answer):
        file = tmp_path / "answer"
        file.write_bytes(msgspec.json.encode(answer))
        words = [sys.executable, "-c", ONE_ANSWER, str(file)]
        launcher = CommandLauncher(f"{shlex.join(words)} {{command}}")
        with contextlib.closing(launcher):
            return launcher.runtime()

    return ask


def test_an_answer_that_names_another_file_than_a_rank_s_is_refused(answered):
    with pytest.raises(LaunchError, match="gave an answer that is none of ddp_perf"):
        answered(RelayAnswer(output={"/etc/cron.d/x": b""}))


def test_the_parts_of_a_long_answer_are_signs_of_life(answered, monkeypatch):
    beats_after = []

    def wait_for_answer(arrived, beats, patience_s):
        assert arrived(60)
        beats_after.append(beats())
        return True

    monkeypatch.setattr(command, "beats_until", wait_for_answer)
    runtime = Runtime(python="3", torch="2", cuda=None, cudnn=None, nccl=None, blas="mkl")

    traces = {"rank0.json.gz": os.urandom(2**20)}
    assert answered(RelayAnswer(runtime=runtime, profiles=traces)) == runtime

    assert beats_after[0] > 10
