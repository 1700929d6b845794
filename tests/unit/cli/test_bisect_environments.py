"""``ddp-perf bisect`` with environments: what it refuses before anything is launched."""

from __future__ import annotations

import sys

import pytest
from typer.testing import CliRunner

from ddp_perf.cli.app import app
from ddp_perf.duel.environments.run import parse_environment, prepare_environment

PYTHON = f"python:{sys.executable}"


def bisect(*arguments):
    return CliRunner().invoke(app, ["bisect", "--case", "some", *arguments])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "give --good and --bad for commits, --torch, or --good-env and --bad-env"),
        (["--good-env", "env:A=1"], "give --good and --bad for commits, --torch, or"),
        (
            ["--good", "main", "--bad-env", "env:A=1"],
            "give --good and --bad for commits, --torch, or",
        ),
        (
            ["--good-env", "env:A=1 env:B=1", "--bad-env", "env:A=2"],
            "'env:A=1 env:B=1' is not an environment; write python:",
        ),
        (["--good-env", "", "--bad-env", "env:A=2"], "'' is not an environment"),
    ],
)
def test_a_mistake_is_refused_in_one_line(tmp_path, monkeypatch, arguments, said):
    monkeypatch.chdir(tmp_path)

    done = bisect(*arguments)

    assert done.exit_code == 4
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


def test_an_interpreter_and_variables_are_one_environment(tmp_path):
    sides = parse_environment(f"{PYTHON} env:SOME=1", "A", tmp_path)

    with prepare_environment(sides, tmp_path, on_progress=print) as prepared:
        assert prepared.interpreter == sys.executable
        assert prepared.variables == {"SOME": "1"}
        assert prepared.environ["SOME"] == "1"
        assert prepared.side.spec == f"{PYTHON} env:SOME=1"
