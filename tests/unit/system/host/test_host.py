"""The names of the host in reports and baselines."""

from __future__ import annotations

import os
import re
import subprocess

import pytest

from ddp_perf.system.host import host
from ddp_perf.system.host.host import (
    allowed_cores,
    cpu_name,
    cpu_slug,
    current_branch,
    current_commit,
    job_address,
)


def test_the_allowed_cores_are_those_of_this_process():
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {max(before)})
        assert allowed_cores() == (max(before),)
    finally:
        os.sched_setaffinity(0, before)
    assert allowed_cores() == tuple(sorted(before))


XEON = "Intel(R) Xeon(R) CPU E5-2690 v4 @ 2.60GHz"


@pytest.mark.parametrize(
    ("name", "quota", "slug"),
    [
        (XEON, None, "cpu-xeon-e5-2690-v4-2.60ghz-4c-node-7"),
        ("AMD EPYC 7763 64-Core Processor", None, "cpu-epyc-7763-64-core-4c-node-7"),
        (XEON, 4.0, "cpu-xeon-e5-2690-v4-2.60ghz-4c-node-7"),
        (XEON, 2.0, "cpu-xeon-e5-2690-v4-2.60ghz-4c-quota-2-node-7"),
        (XEON, 1.5, "cpu-xeon-e5-2690-v4-2.60ghz-4c-quota-1.5-node-7"),
    ],
)
def test_a_cpu_baseline_is_named_by_model_cores_quota_and_host(monkeypatch, name, quota, slug):
    monkeypatch.setattr(host, "cpu_quota", lambda: quota)
    monkeypatch.setattr(host, "cpu_name", lambda: name)
    monkeypatch.setattr(host, "allowed_cores", lambda: (0, 1, 2, 3))
    monkeypatch.setattr(host, "host_name", lambda: "Node_7")

    assert cpu_slug() == slug


def test_the_hosts_of_a_pool_share_a_baseline_of_each_processor(monkeypatch):
    monkeypatch.setattr(host, "cpu_quota", lambda: None)
    monkeypatch.setattr(host, "cpu_name", lambda: XEON)
    monkeypatch.setattr(host, "allowed_cores", lambda: (0, 1))

    for name in ("runner-1", "runner-2"):
        monkeypatch.setattr(host, "host_name", lambda name=name: name)
        assert cpu_slug("CI_small.1") == "cpu-xeon-e5-2690-v4-2.60ghz-2c@CI_small.1"


def test_the_name_of_this_processor_gives_a_file_name():
    assert cpu_name()
    assert re.fullmatch(r"cpu-[a-z0-9.\-]+", cpu_slug())


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """``repository(command, …)`` runs git in a repository of its own."""
    for name in ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM"):
        monkeypatch.setenv(name, os.devnull)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))

    def git(*command):
        identity = ("-c", "user.name=a", "-c", "user.email=a@b")
        subprocess.run(["git", *identity, *command], cwd=tmp_path, check=True, capture_output=True)

    return git


def test_the_commit_is_marked_if_files_differ_from_it(repository, tmp_path):
    repository("init")
    (tmp_path / "a.txt").write_text("1")
    repository("add", "a.txt")
    repository("commit", "--message", "first")
    repository("tag", "--annotate", "--message", "v1", "v1")  # a tag must not stand for it

    clean = current_commit(tmp_path)
    (tmp_path / "a.txt").write_text("2")

    assert re.fullmatch(r"[0-9a-f]{12}", clean)
    assert current_commit(tmp_path) == clean + "+"


@pytest.mark.usefixtures("repository")
def test_the_commit_is_none_outside_of_a_repository(tmp_path):
    assert current_commit(tmp_path) is None


def test_the_commit_is_none_without_git(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))

    assert current_commit(tmp_path) is None


def test_the_branch_is_the_one_that_is_checked_out(repository, tmp_path, monkeypatch):
    monkeypatch.setenv("GITHUB_REF_NAME", "of-the-job")
    repository("init", "--initial-branch=wider-layers")
    repository("commit", "--allow-empty", "--message", "first")

    assert current_branch(tmp_path) == "wider-layers"

    repository("checkout", "--detach")  # as CI systems do
    assert current_branch(tmp_path) == "of-the-job"


def test_a_pull_request_has_the_branch_that_it_is_from(tmp_path, monkeypatch):
    monkeypatch.setenv("GITHUB_REF_NAME", "12/merge")
    monkeypatch.setenv("GITHUB_HEAD_REF", "wider-layers")

    assert current_branch(tmp_path) == "wider-layers"


def test_without_a_branch_there_is_none(tmp_path, monkeypatch):
    for name in ("GITHUB_HEAD_REF", "GITHUB_REF_NAME", "CI_COMMIT_BRANCH"):
        monkeypatch.delenv(name, raising=False)

    assert current_branch(tmp_path) is None

    monkeypatch.setenv("GITHUB_REF_TYPE", "tag")
    monkeypatch.setenv("GITHUB_REF_NAME", "v1.0")
    assert current_branch(tmp_path) is None


@pytest.mark.parametrize(
    ("environ", "address"),
    [
        ({}, ""),
        (
            {
                "GITHUB_ACTIONS": "true",
                "GITHUB_SERVER_URL": "https://github.com",
                "GITHUB_REPOSITORY": "we/train",
                "GITHUB_RUN_ID": "7",
            },
            "https://github.com/we/train/actions/runs/7",
        ),
        (
            {"CI_JOB_URL": "https://gitlab.example/we/-/jobs/9"},
            "https://gitlab.example/we/-/jobs/9",
        ),
        ({"BUILD_URL": "https://jenkins.example/3/"}, "https://jenkins.example/3/"),
        ({"BUILD_URL": "https://ci:tok3n@jenkins.example/3/?t=x"}, "https://jenkins.example/3/"),
        ({"BUILD_URL": "not an address"}, ""),
    ],
)
def test_a_ci_job_has_an_address(environ, address):
    assert job_address(environ) == address
