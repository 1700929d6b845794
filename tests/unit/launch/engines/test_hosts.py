"""The command that runs a server on a host."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys

import pytest

from ddp_perf.launch.engines.hosts import Hosts


@pytest.fixture
def words(tmp_path):
    """``words(shell)``: the command for the host b."""

    def of(shell="env WHERE={node} sh -c"):
        engine = Hosts(["a", "b"], node_shell=shell, endpoint="a:29400")
        return engine.transport("b", "cpu", tmp_path).words

    return of


def test_a_shell_gets_one_line_that_begins_in_this_directory(words):
    *shell, line = words("ssh -o ConnectTimeout=15 {node}")

    assert shell == ["ssh", "-o", "ConnectTimeout=15", "b"]
    assert line.startswith(f"cd {os.getcwd()} && exec env PYTHONPATH=")
    assert shlex.split(line)[-3:] == [sys.executable, "-m", "ddp_perf.launch.server"]


def test_the_name_of_a_host_is_one_word(tmp_path):
    engine = Hosts(["b; true"], node_shell="ssh {node}", endpoint="")

    assert engine.transport("b; true", "cpu", tmp_path).words[:2] == ["ssh", "b; true"]


def test_a_shell_on_a_host_gets_the_path_of_the_libraries(words, monkeypatch):
    monkeypatch.setenv("LD_LIBRARY_PATH", "/opt/aws-ofi-nccl/lib")
    *shell, line = words("env -u LD_LIBRARY_PATH sh -c")
    shown = line.replace(f"{sys.executable} -m ddp_perf.launch.server", "printenv LD_LIBRARY_PATH")

    done = subprocess.run([*shell, shown], capture_output=True, text=True, check=True)

    assert done.stdout == "/opt/aws-ofi-nccl/lib\n"
