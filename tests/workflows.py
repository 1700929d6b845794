"""Runs the jobs of a CI system's file here: each script in a shell, in a clone of a repository.

Nothing is ignored: an action, an expression or a condition that is not listed here is a KeyError.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess

import yaml

from tests.projects import REPOSITORY

TEMPLATES = REPOSITORY / "ci" / "templates"
GH = """\
#!/usr/bin/env bash
# Stands in for gh: notes its arguments and the body, and answers from files.
printf '%s\\n' "$*" >>"$FORGE/gh.log"
for last; do
    case $last in body=@*) cat "${last#body=@}" >>"$FORGE/bodies.md" ;; esac
done
case $* in *--body-file*) cat "$last" >>"$FORGE/bodies.md" ;; esac
case "$1 $2 $3" in
    "pr view "*) cat "$FORGE/state" 2>/dev/null ;;
    "issue list "*) cat "$FORGE/issue" 2>/dev/null || true ;;
    "api --paginate "*) jq --raw-output "$last" "$FORGE/comments.json" ;;
    "api --method GET") jq --raw-output "$last" "$FORGE/pulls.json" ;;
esac
"""
CURL = """\
#!/usr/bin/env bash
# Stands in for curl: notes its arguments and the body, and answers from a file.
printf '%s\\n' "$*" >>"$FORGE/curl.log"
case $* in
    *body@*) cat artifacts/pr/comment.md >>"$FORGE/bodies.md"; echo '{}' ;;
    */user) echo '{"id": 1}' ;;
    *) cat "$FORGE/notes.json" ;;
esac
"""
HOOK = """\
#!/bin/sh
env | grep ^GIT_PUSH_OPTION_ >"$FORGE/push_options" || true
"""


class Forge:
    """A repository with one branch, what its jobs keep, and what they do with ``gh`` and push."""

    def __init__(self, directory, project):
        self.directory = directory
        self.remote = directory / "remote.git"
        self.artifacts = directory / "artifacts"
        self.git("init", "--quiet", "--initial-branch=main", at=project)
        self.commit(project, "the project")
        self.git("clone", "--quiet", "--bare", str(project), str(self.remote), at=directory)
        self.git("config", "receive.advertisePushOptions", "true", at=self.remote)
        self._executable(self.remote / "hooks" / "pre-receive", HOOK)
        self._executable(directory / "bin" / "gh", GH)
        self._executable(directory / "bin" / "curl", CURL)

    def script(self, clone, name, text):
        """Replace a script of the project in a clone."""
        self._executable(clone / name, text)

    @staticmethod
    def _executable(path, text):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)

    def git(self, *words, at=None):
        done = subprocess.run(
            ["git", *words],
            cwd=at or self.remote,
            env=self.environment(),
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        )
        return done.stdout

    def commit(self, clone, message):
        self.git("add", "--all", at=clone)
        self.git("commit", "--quiet", "--message", message, at=clone)

    def head(self, branch="main"):
        return self.git("rev-parse", branch).strip()

    def note(self, name):
        path = self.directory / name
        return path.read_text() if path.exists() else ""

    def clone(self, name, commit):
        root = self.directory / name
        shutil.rmtree(root, ignore_errors=True)
        self.git("clone", "--quiet", str(self.remote), str(root), at=self.directory)
        self.git("checkout", "--quiet", "--detach", commit, at=root)
        return root

    def environment(self, root=None, **variables):
        """Return the variables of a shell; no setting of this machine's git reaches it."""
        kept = ("GITHUB_", "PYTEST_", "GIT_", "CI_")
        own = {name: value for name, value in os.environ.items() if not name.startswith(kept)}
        path = [str(self.directory / "bin"), *([str(root / "bin")] if root else ()), own["PATH"]]
        # An identity for the commits of tests alone: a job has to set its own.
        who = {} if root else {"GIT_AUTHOR_NAME": "test", "GIT_AUTHOR_EMAIL": "test@example.com"}
        who |= {name.replace("AUTHOR", "COMMITTER"): value for name, value in who.items()}
        return {
            **own,
            **who,
            "PATH": os.pathsep.join(path),
            "PYTHONPATH": str(REPOSITORY),
            "PYTHONUTF8": "1",
            "HOME": str(self.directory),
            "GIT_CONFIG_NOSYSTEM": "1",
            "FORGE": str(self.directory),
            # A few cases: to start workers takes longer. test_work.py has sessions with workers.
            "PYTEST_XDIST_AUTO_NUM_WORKERS": "0",
            **variables,
        }

    def shell(self, words, script, root, variables):
        return subprocess.run(
            [*words, script],
            cwd=root,
            env=self.environment(root, **variables),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
            timeout=900,  # a session waits while another one measures this machine
        )


class Ended:
    """A job that has ended: its exit code, that of the first step that failed, and its output."""

    def __init__(self):
        self.code = 0
        self.output = ""
        self.outputs = {}
        self.summary = ""


def load(name):
    return yaml.safe_load((TEMPLATES / name).read_text(encoding="utf-8"))


def substituted(value, expressions):
    """Return the value without ``${{ … }}``. Raises KeyError for an unknown expression."""
    return re.sub(r"\$\{\{ (.+?) \}\}", lambda found: expressions[found[1]], str(value))


def run_github(forge, name, job, expressions, *, conditions=None, env=None):
    """Run the steps of a job of a GitHub workflow."""
    workflow = load(f"github/{name}")
    stated = {**workflow.get("env", {}), **(env or {})}
    steps = workflow["jobs"][job]["steps"]
    root = forge.directory / job
    return _run_steps(forge, steps, root, expressions, conditions=conditions or {}, env=stated)


def run_action(forge, root, inputs, expressions, *, env=None):
    """Run the action of the repository in a job whose directory is ``root``."""
    action = yaml.safe_load((REPOSITORY / "action.yml").read_text(encoding="utf-8"))
    values = {
        name: substituted(inputs.get(name, stated["default"]), expressions)
        for name, stated in action["inputs"].items()
    }
    conditions = {
        f"inputs.command == '{command}'": values["command"] == command
        for command in ("pr", "comment")
    }
    expressions = {**expressions, **{f"inputs.{name}": text for name, text in values.items()}}
    stated = {"GITHUB_ACTION_PATH": REPOSITORY, **(env or {})}
    steps = action["runs"]["steps"]
    return _run_steps(forge, steps, root, expressions, conditions=conditions, env=stated)


def _run_steps(forge, steps, root, expressions, *, conditions, env):
    ended = Ended()
    for step in steps:
        always, condition = re.fullmatch(r"(always\(\))?(?: && )?(.*)", step.get("if", "")).groups()
        if (ended.code and not always) or (condition and not conditions[condition]):
            continue
        if step.get("uses") == "./":
            done = run_action(forge, root, step["with"], expressions, env=env)
            ended.code, ended.output = ended.code or done.code, ended.output + done.output
            continue
        if "uses" in step:
            root = _act(forge, step, root, expressions)
            continue
        output, summary = root / "../output", root / "../step_summary"
        for file in (output, summary):
            file.write_text("")
        own = {"GITHUB_ACTIONS": "true", "GITHUB_OUTPUT": output, "GITHUB_STEP_SUMMARY": summary}
        stated = {**env, **step.get("env", {})}
        variables = {key: substituted(value, expressions) for key, value in stated.items()}
        variables |= {key: str(value) for key, value in own.items()}
        shell = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c"]
        done = forge.shell(shell, step["run"], root, variables)
        ended.output += done.stdout
        ended.summary += summary.read_text("utf-8")
        ended.outputs |= dict(line.split("=", 1) for line in output.read_text().splitlines())
        ended.code = ended.code or done.returncode
    return ended


def _act(forge, step, root, expressions):
    """Do what an action does, and return the directory of the job."""
    action, version = step["uses"].split("@")
    inputs = {key: substituted(value, expressions) for key, value in step.get("with", {}).items()}
    assert re.fullmatch(r"[0-9a-f]{40}", version)
    if action == "actions/checkout":
        return forge.clone(root.name, inputs.get("ref", "main"))
    if action == "actions/upload-artifact":
        if (root / inputs["path"]).exists():  # else a warning
            _copy(root / inputs["path"], forge.artifacts / inputs["name"])
    elif action == "actions/download-artifact":
        root.mkdir(exist_ok=True)
        source = forge.artifacts / inputs["name"]
        if source.exists() or not step.get("continue-on-error"):
            _copy(source, root / inputs["path"])
    else:
        assert action in ("actions/setup-python", "actions/cache/restore", "actions/cache/save")
    return root


def _copy(source, target):
    shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True)


def run_gitlab(forge, job, *, shell="bash", env=None, needs=None, commit="main"):
    """Run the script of a job of the GitLab file; ``needs`` is the job whose artifacts it gets."""
    file, ended = load("gitlab/.gitlab-ci.yml"), Ended()
    root = forge.clone(job, commit)
    if needs is not None:
        _copy(forge.artifacts / needs, root / "artifacts")
    stated = {
        name: str(value["value"] if isinstance(value, dict) else value)
        for name, value in file["variables"].items()
    }
    options = ["-eo", "pipefail"] if shell == "bash" else ["-e"]
    script = "\n".join(file[job]["script"])
    words, variables = [shell, *options, "-c"], stated | (env or {})
    done = forge.shell(words, script, root, variables)
    ended.code, ended.output = done.returncode, done.stdout
    if "after_script" in file[job]:  # in a shell of its own, whatever the first one ended with
        done = forge.shell(words, "\n".join(file[job]["after_script"]), root, variables)
        assert done.returncode == 0, done.stdout
    for path in file[job].get("artifacts", {}).get("paths", []):
        if (root / path).exists():
            _copy(root / path, forge.artifacts / job)
    return ended
