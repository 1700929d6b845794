"""What ranks leave behind is ended with their launch."""

from __future__ import annotations

import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from ddp_perf.launch.supervisor.watch import ending_orphans


def test_a_process_that_may_not_be_killed_costs_no_launch(monkeypatch):
    """A rank may have started a set-user-ID program. It ends by itself, and is reaped."""
    left = []

    def refuse(pid, number):
        assert pid == left[0].pid
        left[0].stdin.close()
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "kill", refuse)

    with ending_orphans(SimpleNamespace(beat=lambda: None)):
        command = [sys.executable, "-c", "import sys; sys.stdin.read()"]
        left.append(subprocess.Popen(command, stdin=subprocess.PIPE))

    with pytest.raises(ChildProcessError):
        os.waitpid(left[0].pid, os.WNOHANG)
    left[0].returncode = 0  # reaped
