"""The files for CI systems and clusters give untrusted code neither a token nor a command."""

from __future__ import annotations

import re

import pytest
import yaml

from tests.projects import REPOSITORY

_TEMPLATES = REPOSITORY / "ci" / "templates"
_FILES = [*(_TEMPLATES / "github").glob("*.yml"), _TEMPLATES / "own_project/training-speed.yml"]
_WORKFLOWS = {file.name: yaml.safe_load(file.read_text("utf-8")) for file in sorted(_FILES)}
_ACTION = yaml.safe_load((REPOSITORY / "action.yml").read_text("utf-8"))
# Jobs that speak with the forge by git: neither runs the code of a pull request.
_WITH_CREDENTIALS = {("nightly.yml", "gate"), ("baselines.yml", "propose")}
_JOBS = [(name, job) for name, one in _WORKFLOWS.items() for job in one["jobs"]]


def pod_specs(value):
    """Yield each specification of a pod in a manifest."""
    if isinstance(value, dict):
        if "containers" in value:
            yield value
        for inner in value.values():
            yield from pod_specs(inner)


def job_of(name, job):
    return _WORKFLOWS[name]["jobs"][job]


def triggers(name):
    stated = _WORKFLOWS[name][True]  # YAML's "on"
    return {stated} if isinstance(stated, str) else set(stated)


@pytest.mark.parametrize("name", _WORKFLOWS)
def test_a_workflow_states_what_it_may_and_never_runs_a_fork_with_secrets(name):
    stated = _WORKFLOWS[name]["permissions"]

    assert stated in ({}, {"contents": "read"})  # what is more, a job states
    assert not triggers(name) & {"pull_request_target", "issue_comment", "issues"}


@pytest.mark.parametrize(("name", "job"), _JOBS)
def test_a_job_on_a_pull_request_may_only_read_and_has_no_secret(name, job):
    stated = job_of(name, job)

    if "pull_request" in triggers(name):
        assert "permissions" not in stated
        assert "secrets." not in str(stated)
        assert "self-hosted" not in str(stated["runs-on"])
    if (
        "workflow_run" in triggers(name)
        and stated.get("permissions", {}).get("contents") == "write"
    ):
        assert "head_repository.full_name == github.repository" in stated["if"]
        assert "workflow_run.event != 'pull_request'" in stated["if"]


@pytest.mark.parametrize(("name", "job"), _JOBS)
def test_a_checkout_leaves_no_token_to_the_code_that_runs_after_it(name, job):
    for step in job_of(name, job).get("steps", []):
        if step.get("uses", "").startswith("actions/checkout@"):
            keeps = step.get("with", {}).get("persist-credentials", True)
            assert keeps == ((name, job) in _WITH_CREDENTIALS)


@pytest.mark.parametrize(("name", "job"), _JOBS)
def test_a_script_gets_texts_of_others_by_variables_alone(name, job):
    steps = job_of(name, job).get("steps", [])

    assert [step for step in steps if "${{" in step.get("run", "")] == []


def test_every_action_is_a_commit_of_github_or_this_repository():
    """A tag may be moved to other code; a commit is what it was."""
    steps = [step for name, job in _JOBS for step in job_of(name, job).get("steps", [])]
    used = {step["uses"] for step in [*steps, *_ACTION["runs"]["steps"]] if "uses" in step}

    assert "./" in used
    pinned = re.compile(r"actions/[\w/-]+@[0-9a-f]{40}")
    assert {one for one in used if not pinned.fullmatch(one)} == {"./"}


def test_the_action_gives_texts_of_others_to_its_scripts_by_variables_alone():
    assert [step for step in _ACTION["runs"]["steps"] if "${{" in step.get("run", "")] == []


# GitLab runs the merge request of a fork in the fork's project, without variables of this one. A
# protected variable is not in any merge request; the other one is, and the measured code lacks it.
_GITLAB = yaml.safe_load((_TEMPLATES / "gitlab/.gitlab-ci.yml").read_text("utf-8"))
_OF_REQUESTS = [
    name
    for name, job in _GITLAB.items()
    if isinstance(job, dict) and "merge_request_event" in str(job.get("rules"))
]


@pytest.mark.parametrize("name", _OF_REQUESTS)
def test_a_job_of_a_merge_request_has_no_token_that_writes(name):
    assert "BASELINES_TOKEN" not in str(_GITLAB[name])


def test_a_branch_is_pushed_for_sessions_of_the_default_branch_alone():
    pushing = [name for name, job in _GITLAB.items() if "BASELINES_TOKEN" in str(job)]

    assert pushing == ["baselines"]
    assert _GITLAB["baselines"]["rules"][0] == {
        "if": "$CI_COMMIT_BRANCH != $CI_DEFAULT_BRANCH",
        "when": "never",
    }


_MANIFESTS = sorted((_TEMPLATES / "kubernetes").glob("*.yaml"))
_PODS = [
    spec
    for file in _MANIFESTS
    for document in yaml.safe_load_all(file.read_text("utf-8"))
    for spec in pod_specs(document)
]


@pytest.mark.parametrize("spec", _PODS, ids=lambda spec: spec["containers"][0]["name"])
def test_a_pod_has_neither_the_host_nor_an_account_of_the_cluster(spec):
    assert spec["automountServiceAccountToken"] is False
    assert not re.search("privileged|host(Network|PID|IPC|Path)|add:", str(spec))
