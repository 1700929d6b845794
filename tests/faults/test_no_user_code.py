"""``--ddp-no-user-code`` refuses a file that names code, before it is imported or launched.

A command has the same as ``--no-user-code``.
"""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

import tests.late_imports  # noqa: F401
from ddp_perf.cli.app import app
from ddp_perf.errors import ExitCode
from tests.projects import TINY, make_project

_BUILT_IN = "workload: mlp\nmodel: {input_dim: 64, hidden_dim: 64, output_dim: 8}"
_NAMED = {
    "workload": TINY.replace(_BUILT_IN, "workload: ours:build"),
    "script": TINY.replace(_BUILT_IN, "script: ours.py").replace(
        "[16]", "[16]\nargs: ['{batch_size}']"
    ),
    "env": TINY + "env: {LD_PRELOAD: ./ours.so}\n",
    "techniques.own.env": TINY + "techniques: {own: {env: {LD_PRELOAD: ./ours.so}}}\n",
}
_OURS = "from pathlib import Path\nPath('imported').touch()\ndef build(context): ...\n"


def refusal(project, *arguments):
    result = project.runpytest("-m", "perf", *arguments)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    return next(line for line in result.errlines if "--ddp-no-user-code" in line)


@pytest.mark.parametrize("field", _NAMED)
def test_a_suite_that_names_code_is_refused(pytester, monkeypatch, field):
    project = make_project(pytester, monkeypatch, own=_NAMED[field])
    (project.path / "ours.py").write_text(_OURS)

    assert f"own.yaml: {field}: " in refusal(project, "--ddp-no-user-code")
    assert not (project.path / "imported").exists()
    assert project.runpytest("-m", "perf", "--collect-only", "-q").ret == 0  # the option alone


@pytest.mark.parametrize(
    ("key", "lines"),
    [
        ("node_shell", "launcher: ssh\nhosts: [a]\nnode_shell: touch imported {node}"),
        ("python", "launcher: slurm\nnnodes: 1\npython: ./ours"),
        ("srun_args", "launcher: slurm\nnnodes: 1\nsrun_args: [--prolog=./ours]"),
        ("salloc_args", "launcher: slurm\nnnodes: 1\nsalloc_args: [--bcast=./ours]"),
        ("pod_template", "launcher: kubernetes\nnnodes: 1\npod_template: pod.yaml"),
    ],
)
def test_a_cluster_file_that_names_a_command_is_refused(pytester, monkeypatch, key, lines):
    project = make_project(pytester, monkeypatch, tiny=TINY)
    (project.path / "cluster.yaml").write_text(lines + "\n")

    said = refusal(project, "--ddp-no-user-code", "--ddp-cluster=cluster.yaml")

    assert f"cluster.yaml: {key}: " in said


def test_a_side_of_a_duel_is_refused(pytester, monkeypatch):
    project = make_project(pytester, monkeypatch, tiny=TINY)

    assert "leave one of them out" in refusal(
        project, "--ddp-no-user-code", "--ddp-against=command: ./ours {command}"
    )


def test_built_in_workloads_are_measured(pytester, monkeypatch):
    project = make_project(pytester, monkeypatch, tiny=TINY)

    assert project.runpytest("-m", "perf", "--collect-only", "-q", "--ddp-no-user-code").ret == 0


def test_code_that_baselines_keep_is_not_run(pytester, monkeypatch):
    project = make_project(pytester, monkeypatch, tiny=TINY)

    assert "the code that baselines keep" in refusal(
        project, "--ddp-no-user-code", "--ddp-settle=1m"
    )
    only = ("-m", "perf", "--collect-only", "-q", "--ddp-no-user-code")
    assert project.runpytest(*only, "--ddp-settle=0").ret == 0


@pytest.mark.parametrize("command", [["selftest"], ["sweep", "CASE", "bucket_cap_mb=1,5"]])
@pytest.mark.parametrize("field", _NAMED)
def test_a_command_refuses_a_suite_that_names_code(tmp_path, monkeypatch, command, field):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.yaml").write_text(_NAMED[field])
    (tmp_path / "ours.py").write_text(_OURS)

    done = CliRunner().invoke(app, [*command, "--config=own.yaml", "--no-user-code"])

    assert done.exit_code == ExitCode.USAGE
    assert done.stderr.startswith(f"ddp-perf: own.yaml: {field}: --no-user-code refuses it")
    assert not (tmp_path / "imported").exists()


def test_a_sweep_refuses_variables_of_a_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.yaml").write_text(TINY)
    (tmp_path / "knobs.yaml").write_text("LD_PRELOAD: [./ours.so]\n")
    files = ("--config=own.yaml", "--file=knobs.yaml")

    done = CliRunner().invoke(app, ["sweep", "CASE", *files, "--no-user-code"])

    assert done.exit_code == ExitCode.USAGE
    assert done.stderr.startswith("ddp-perf: --file: --no-user-code refuses it")
