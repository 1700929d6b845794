"""What reads files of others imports and runs nothing that they name, or that lies beside them."""

from __future__ import annotations

import contextlib
import importlib

import pytest
from typer.testing import CliRunner

from ddp_perf.baselines.store import BaselineStore
from ddp_perf.cli.app import app
from ddp_perf.errors import ExitCode
from ddp_perf.history.store import HistoryStore
from ddp_perf.session.result import write_results
from tests.builders import (
    make_baseline,
    make_case,
    make_case_baseline,
    make_measurement,
    make_result,
)
from tests.projects import TINY
from tests.recorded_sessions import make_recorded_session

_CASE = make_case(workload="ours:build")
_URL = "sqlite:///h.sqlite"
_TRAP = "from pathlib import Path\nPath('imported').touch()\ndef build(context): ...\n"
_COMMANDS = {
    "report": ("results.json",),
    "compare": ("results.json", "again.json"),
    "judge": ("results.json",),
    "explain": ("results.json",),
    "audit": ("baselines/cpu-some-2c-host.json",),
    "baseline": ("show", "cpu-some-2c-host"),
    "history": ("--history", _URL),
    "site": ("--history", _URL),
    "export": ("csv", "--history", _URL, "--out", "all.csv"),
    "doctor": (),
}


@pytest.fixture(autouse=True)
def project(tmp_path, monkeypatch):
    """A project whose files name a workload that leaves a trace when it is imported."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("ours", "conftest", "sitecustomize", "trap_itself"):
        (tmp_path / f"{name}.py").write_text(_TRAP)
    (tmp_path / "bench_configs").mkdir()
    (tmp_path / "bench_configs/a.yaml").write_text(TINY.replace("mlp\n", "ours:build\n"))
    for name in ("results", "again"):
        result = make_result([make_measurement(_CASE, [0.010, 0.0101, 0.0099])])
        write_results(tmp_path / f"{name}.json", [result], complete=True)
    stored = make_baseline({_CASE.id: make_case_baseline(_CASE)})
    BaselineStore(tmp_path / "baselines").update(stored.accelerator, lambda _: stored)
    with contextlib.closing(HistoryStore(_URL)) as history:
        history.append([make_recorded_session(_CASE, number, 0.01) for number in range(3)])
    return tmp_path


@pytest.mark.parametrize("command", _COMMANDS)
def test_a_command_that_reads_imports_nothing_of_the_project(project, command):
    done = CliRunner().invoke(app, [command, *_COMMANDS[command]])

    assert done.exit_code != ExitCode.USAGE, done.output
    assert not (project / "imported").exists()


def test_what_is_imported_would_leave_a_trace(project):
    importlib.import_module("trap_itself")

    assert (project / "imported").exists()
