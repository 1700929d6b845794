"""``--ddp-touched``: the duel has only the cases that changed files can touch."""

from __future__ import annotations

import os
import subprocess

import pytest

ONE, TWO = "mlp-none-fp32-ws1-b16", "mlp-ddp-fp32-ws2-b16"
OURS = """\
suite: ours
tier: cpu
workload: our_model:build
world_sizes: [1]
batch_sizes: [4]
steps: 8
warmup: 2
"""
REASON = "no changed file can touch it: none is its suite file"
MEMORY = ("-k", "memory", "--ddp-touched")


@pytest.fixture
def repository(against, monkeypatch):
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    (against.path / "our_model.py").write_text("import layers\n\ndef build(context): ...\n")
    (against.path / "layers.py").write_text("")
    against.project.suite("ours", OURS)
    git(against, "init", "--quiet", "--initial-branch=main")
    git(against, "add", "--all")
    who = ("-c", "user.name=test", "-c", "user.email=test@example.com")
    git(against, *who, "commit", "--quiet", "--message=one")
    return against


def words(done):
    return " ".join(str(done.stdout).split())


def git(against, *words):
    subprocess.run(["git", *words], cwd=against.path, check=True)


def test_only_what_a_change_touches_is_in_the_duel_and_the_others_have_a_reason(repository):
    (repository.path / "layers.py").write_text("# changed\n")

    done = repository.run(*MEMORY, "-rs", "--ddp-strict", "--ddp-report=out", side="main")

    (asked,) = repository.asked
    assert asked == ["our_model.build-none-fp32-ws1-b4"]
    done.assert_outcomes(passed=1, skipped=2, deselected=done.parseoutcomes()["deselected"])
    assert done.ret == 0
    comment = (repository.path / "out" / "duel.md").read_text("utf-8")
    assert f"2 cases left out: --ddp-touched: {REASON}" in comment
    done.stdout.fnmatch_lines([f"*--ddp-touched: {REASON}"])
    assert f"left out: 2 cases: --ddp-touched: {REASON}" in words(done)


def test_without_any_change_that_touches_a_case_no_duel_runs_and_the_session_is_green(repository):
    (repository.path / "README.md").write_text("# changed\n")

    done = repository.run(*MEMORY, "--ddp-strict", "--ddp-report=out", side="main")

    assert repository.asked == []
    assert done.ret == 0
    shown = words(done)
    assert "no changed file can touch a case" in shown
    assert f"left out: 2 cases: --ddp-touched: {REASON}" in shown
    assert f"left out: 1 case: --ddp-touched: {REASON}, and our_model:build imports none" in shown
    comment = (repository.path / "out" / "duel.md").read_text("utf-8")
    assert comment.startswith("## ✅ UNTOUCHED: ")
    assert f"2 cases left out: --ddp-touched: {REASON}" in comment
    assert ONE in comment
    assert TWO in comment


def test_it_needs_a_revision(against):
    done = against.run(*MEMORY)

    assert done.ret == pytest.ExitCode.USAGE_ERROR
    assert "--ddp-touched: needs a git revision as --ddp-against" in str(done.stderr)
