"""The Dockerfile and the manifests in ci/templates: valid, and what they run works.

No image is built here. The set-up of the Dockerfile runs with a python that records each ``pip
install`` and has a torch.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.kubernetes_schema import problems

REPOSITORY = Path(__file__).parents[2]
TEMPLATES = REPOSITORY / "ci" / "templates"
DOCKERFILE = TEMPLATES / "Dockerfile"
MANIFESTS = sorted((TEMPLATES / "kubernetes").glob("*.yaml"))
# Of every call that set-up makes, what it gets; the rest is asked of the real interpreter.
PYTHON = """\
#!/usr/bin/env bash
case $* in
    "-m venv .venv")
        mkdir -p .venv/bin site
        cp "$0" .venv/bin/python
        echo "$AFTER" >.venv/bin/version
        ;;
    "-m pip install"*) echo "${PIP_CONSTRAINT-} $*" >>installed ;;
    *sysconfig*) echo "$PWD/site" ;;
    *find_spec*) echo /usr/local/lib/python3.12/dist-packages ;;
    *"import torch"* | *"import numpy, torch"*)
        cat "$(dirname "$0")/version" 2>/dev/null || echo "$BEFORE"
        ;;
    *) exec "$REAL_PYTHON" "$@" ;;
esac
"""


def instructions():
    """Return the instructions of the Dockerfile as ``(name, arguments)``."""
    lines = [line for line in DOCKERFILE.read_text().splitlines() if not line.startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    return [
        (name, rest)
        for name, _, rest in (line.partition(" ") for line in joined.split("\n"))
        if name
    ]


def documents():
    return [
        (file.name, document)
        for file in MANIFESTS
        if file.name != "cluster.yaml"  # which this package reads, and no cluster
        for document in yaml.safe_load_all(file.read_text(encoding="utf-8"))
    ]


@pytest.mark.parametrize(
    "document", [pytest.param(each, id=f"{file}-{each['kind']}") for file, each in documents()]
)
def test_a_manifest_is_valid(document):
    assert problems(document) == []


def test_the_manifests_run_on_the_same_nodes_with_the_same_image():
    by_kind = {document["kind"]: document for _, document in documents()}
    pods = [
        by_kind["PodTemplate"]["template"]["spec"],
        by_kind["CronJob"]["spec"]["jobTemplate"]["spec"]["template"]["spec"],
    ]
    tag = re.search(r"--tag (\S+)", DOCKERFILE.read_text())[1]

    assert pods[0]["nodeSelector"] == pods[1]["nodeSelector"]
    assert pods[0]["tolerations"] == pods[1]["tolerations"]
    assert {pod["containers"][0]["image"] for pod in pods} == {tag}
    limits = [pod["containers"][0]["resources"]["limits"] for pod in pods]
    assert limits[0] == limits[1]


def test_the_nightly_job_mounts_what_it_names():
    cron = next(document for _, document in documents() if document["kind"] == "CronJob")
    claim = next(each for _, each in documents() if each["kind"] == "PersistentVolumeClaim")
    pod = cron["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    [container] = pod["containers"]

    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    assert {mount["name"] for mount in container["volumeMounts"]} == volumes.keys()
    named = volumes["sessions"]["persistentVolumeClaim"]["claimName"]
    assert named == claim["metadata"]["name"]
    assert claim["metadata"]["namespace"] == cron["metadata"]["namespace"]
    assert container["workingDir"] == dict(instructions())["WORKDIR"]


@pytest.mark.parametrize("code", [0, 1])
def test_the_nightly_job_runs_the_gate_and_ends_as_it_does(tmp_path, code):
    cron = next(document for _, document in documents() if document["kind"] == "CronJob")
    [container] = cron["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    (tmp_path / "ci").mkdir()
    nightly = tmp_path / "ci" / "nightly"
    nightly.write_text(f'#!/bin/bash\nprintf "%s\\n" "$@" >arguments\nexit {code}\n')
    nightly.chmod(0o755)
    (tmp_path / "baselines" / "structure").mkdir(parents=True)
    (tmp_path / "baselines" / "structure" / "mlp.json").write_text("{}")
    (tmp_path / "baselines" / "work" / "2.9").mkdir(parents=True)
    (tmp_path / "baselines" / "a100.json").write_text("{}")  # sessions of others
    sessions = tmp_path / "sessions"

    for _ in range(2):  # a second night, too
        done = subprocess.run(
            [
                *container["command"],
                *(each.replace("/sessions", str(sessions)) for each in container["args"]),
            ],
            cwd=tmp_path,
            env={**os.environ, **{each["name"]: each["value"] for each in container["env"]}},
            check=False,
        )
        assert done.returncode == code

    stored = {str(path.relative_to(sessions)) for path in sessions.rglob("*")}
    assert {"baselines/structure/mlp.json", "baselines/work/2.9"} <= stored
    assert "baselines/a100.json" not in stored
    assert (tmp_path / "arguments").read_text().split() == [
        *("--devices", str(container["resources"]["limits"]["nvidia.com/gpu"])),
        *("--ddp-machine", "h100-nodes"),
        *("-o", f"ddp_baselines={sessions}/baselines"),
    ]


def test_the_base_is_nvidias_image_by_default():
    base, image = instructions()[:2]

    assert re.fullmatch(r"BASE=nvcr\.io/nvidia/pytorch:\d\d\.\d\d-py3", base[1])
    assert image == ("FROM", "${BASE}")


def build(tmp_path, *, after):
    """Run the set-up of the Dockerfile in a copy of the project, and return its end."""
    root = tmp_path / "project"
    (root / "ci").mkdir(parents=True)
    for name in ("ci/setup.sh", "ci/requirements.txt", "ci/requirements.lock", "pyproject.toml"):
        shutil.copy(REPOSITORY / name, root / name)
    (root / "ddp_perf").symlink_to(REPOSITORY / "ddp_perf")
    python = tmp_path / "python3"
    python.write_text(PYTHON)
    python.chmod(0o755)
    shell = json.loads(dict(instructions())["SHELL"])
    [set_up] = [rest for name, rest in instructions() if name == "RUN" and "setup.sh" in rest]
    done = subprocess.run(
        [*shell, set_up],
        cwd=root,
        env={
            "PATH": "/usr/bin:/bin",
            "HOME": str(tmp_path),
            "PYTHON": str(python),
            "REAL_PYTHON": sys.executable,
            "PIP_CONSTRAINT": "/etc/pip/constraint.txt",
            "BEFORE": "2.9.0a0+nv25.10 /usr/local/lib/python3.12/dist-packages/torch/__init__.py",
            "AFTER": after,
        },
        capture_output=True,
        text=True,
        check=False,
    )
    return done, (root / "installed").read_text().splitlines()


def test_set_up_in_the_image_keeps_its_torch(tmp_path):
    kept = "2.9.0a0+nv25.10 /usr/local/lib/python3.12/dist-packages/torch/__init__.py"

    done, calls = build(tmp_path, after=kept)

    assert done.returncode == 0, done.stderr
    assert "is what is tested" in done.stderr
    assert all(call.startswith(" -m pip") for call in calls)  # without the image's constraints
    assert all("--no-deps" in call.split() for call in calls)
    assert not any(re.search(r"\btorch\b", call) for call in calls)


def test_an_image_with_another_torch_is_not_built(tmp_path):
    done, _ = build(tmp_path, after="2.13.0 /opt/ddp-perf/.venv/torch/__init__.py")

    assert done.returncode == 1
    assert "torch was 2.9.0a0+nv25.10 /usr" in done.stderr
    assert "and is now 2.13.0 /opt" in done.stderr


def test_no_other_instruction_installs_python_packages():
    runs = [rest for name, rest in instructions() if name == "RUN"]

    assert sum("setup.sh" in run for run in runs) == 1
    assert not any(re.search(r"\b(pip|conda|uv)\b(?!_)", run.replace("PIP_", "")) for run in runs)


def test_what_set_up_makes_on_the_host_is_not_copied():
    ignored = (TEMPLATES / "Dockerfile.dockerignore").read_text().splitlines()

    assert {".venv", "artifacts", "**/__pycache__", ".*_cache"} <= set(ignored)
    assert ".git" not in ignored


@pytest.mark.skipif(shutil.which("hadolint") is None, reason="hadolint is not installed")
def test_the_dockerfile_is_linted():
    done = subprocess.run(
        ["hadolint", str(DOCKERFILE)], capture_output=True, text=True, check=False
    )

    assert done.stdout == ""
    assert done.returncode == 0
