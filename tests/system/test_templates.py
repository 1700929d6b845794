"""The files of ci/templates: they follow their schemas, and every script in them is run.

The forge is a bare repository, ``gh`` is a stand-in that notes what it is called with, and the
project is the tiny one of the docs. All else is real: git, the shells, pytest and the ranks.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys

import pytest
import yaml

from ddp_perf.errors import ExitCode
from ddp_perf.report.pull_request import MARKER
from tests.projects import REPOSITORY
from tests.reader_project import make_reader_project, run
from tests.workflows import TEMPLATES, Forge, load, run_action, run_github, run_gitlab

GITHUB = sorted(path.name for path in (TEMPLATES / "github").iterdir())
# The structure of a step is the same, whatever else runs on the machine.
SMALL = {"GATE": "--tier cpu -k structure --ddp-launches=2"}
LOSSES = "!contains(github.event.pull_request.labels.*.name, 'other losses')"


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    project = make_reader_project(tmp_path_factory.mktemp("project"), world_sizes=[2])
    (project / ".gitignore").write_text("artifacts/\n__pycache__/\nbaselines/.*\n.pytest_cache/\n")
    (project / "tests" / "correctness").mkdir()
    (project / "tests" / "correctness" / "test_one.py").write_text("def test_one(): pass\n")
    (project / "ci" / "postgresql.sh").write_text("")
    tests = project / "ci" / "test"
    tests.write_text(tests.read_text("utf-8").replace("-n 2 --dist worksteal ", ""))  # of one test
    for suite in (project / "bench_configs").glob("*.yaml"):
        if suite.stem != "cpu_quick":
            suite.unlink()  # to count them takes minutes
    run(project, "pytest -m work --save-baseline", {0})
    return project


@pytest.fixture
def forge(project, tmp_path):
    shutil.copytree(project, tmp_path / "project")
    (tmp_path / "forge").mkdir()
    return Forge(tmp_path / "forge", tmp_path / "project")


# ---- as they are written ----


@pytest.mark.parametrize(
    ("schema", "path"),
    [
        *(("vendor.github-workflows", f"github/{name}") for name in GITHUB),
        ("vendor.github-actions", "../../action.yml"),
        ("vendor.gitlab-ci", "gitlab/.gitlab-ci.yml"),
    ],
)
def test_a_template_follows_the_published_schema(schema, path):
    options = ["--builtin-schema", schema, "--verbose"]
    if "gitlab" in schema:
        options += ["--data-transform", "gitlab-ci"]
    command = [sys.executable, "-m", "check_jsonschema", *options, str(TEMPLATES / path)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    assert done.returncode == 0, done.stdout


def scripts():
    action = yaml.safe_load((REPOSITORY / "action.yml").read_text(encoding="utf-8"))
    yield from (step["run"] for step in action["runs"]["steps"] if "run" in step)
    for name in GITHUB:
        for job in load(f"github/{name}")["jobs"].values():
            yield from (step["run"] for step in job.get("steps", ()) if "run" in step)
    for job in load("gitlab/.gitlab-ci.yml").values():
        if isinstance(job, dict) and "script" in job:
            yield "\n".join(job["script"])


@pytest.mark.parametrize("script", list(scripts()))
def test_a_script_names_files_that_exist_and_takes_nothing_but_variables(script):
    assert "${{" not in script  # a title of a pull request would be run
    for path in re.findall(r"(?<![\w/.-])(?:\./)?((?:ci|tests)/[\w/.-]+)", script):
        assert (REPOSITORY / path).exists(), path
    subprocess.run(["bash", "-n", "-c", script], check=True)


def test_only_the_job_that_runs_no_code_of_the_project_may_write_to_the_repository():
    writers = {
        (name, job)
        for name in GITHUB
        for job, stated in load(f"github/{name}")["jobs"].items()
        if stated.get("permissions", {}).get("contents") == "write"
    }

    assert writers == {("baselines.yml", "propose")}
    assert all("permissions" in load(f"github/{name}") for name in GITHUB)


# ---- a pull request ----


def pull_request(forge, **options):
    expressions = {
        "github.event.pull_request.head.sha": forge.head("change"),
        "github.event.pull_request.base.sha": forge.head("main"),
    }
    job = ("pull_request.yml", "training", expressions)
    return run_github(forge, *job, **{"conditions": {LOSSES: True}, **options})


def branch(forge, change):
    """Push a branch ``change`` with the suite file changed by ``change(text)``."""
    clone = forge.clone("author", "main")
    suite = clone / "bench_configs" / "cpu_quick.yaml"
    suite.write_text(change(suite.read_text("utf-8")) + "\n", "utf-8")
    forge.commit(clone, "a change")
    forge.git("push", "--quiet", "origin", "HEAD:refs/heads/change", at=clone)


def wider(text):
    assert "hidden_dim: 64" in text
    return text.replace("hidden_dim: 64", "hidden_dim: 32")


@pytest.mark.slow
def test_a_pull_request_that_changes_no_step_is_green_with_a_summary(forge):
    branch(forge, lambda text: text)

    done = pull_request(forge)

    assert done.code == 0, done.output
    assert done.summary.count("## ") == 1  # of the losses; the duel job has the work
    assert (forge.artifacts / "reports" / "losses" / "index.html").exists()


@pytest.mark.slow
def test_a_pull_request_with_other_losses_is_red_unless_it_is_meant(forge):
    branch(forge, wider)

    done = pull_request(forge)
    assert done.code == 1, done.output
    assert "| case | verdict |" in done.summary
    meant = pull_request(forge, conditions={LOSSES: False})
    assert meant.code == 0, meant.output


@pytest.mark.slow
def test_a_case_that_the_base_has_not_stored_is_not_green(forge):
    """The head stores nothing: otherwise a renamed case would be its own baseline."""
    branch(
        forge, lambda text: re.sub(r"batch_sizes:(\s*- |\s*\[)\d+", r"batch_sizes:\g<1>12", text)
    )

    done = pull_request(forge)

    assert done.code == ExitCode.UNDECIDED, done.output


# ---- the duel of a pull request, and its comment; tests/system/test_pr.py runs ddp-perf pr ----

PR = """\
#!/bin/sh
printf '%s\\n' "$*" "token ${COMMENT_TOKEN-none}" >"$FORGE/pr.log"
mkdir -p artifacts/pr
echo '<!-- ddp-perf -->' >artifacts/pr/comment.md
exit "${CODE-0}"
"""


def duelling(forge):
    """Push a branch ``change`` whose ci/pr is a stand-in, and return its commit."""
    clone = forge.clone("author", "main")
    forge.script(clone, "ci/pr", PR)
    forge.commit(clone, "a change")
    forge.git("push", "--quiet", "origin", "HEAD:refs/heads/change", at=clone)
    return forge.head("change")


def test_the_duel_of_a_pull_request_keeps_its_comment_as_an_artifact(forge):
    expressions = {
        "github.event.pull_request.head.sha": duelling(forge),
        "github.event.pull_request.base.sha": forge.head(),
    }

    duel = run_github(forge, "pull_request.yml", "duel", expressions, env={"CODE": "1"})

    assert duel.code == 1, duel.output
    assert forge.note("pr.log").splitlines()[0] == f"--base {forge.head()} --tier cpu"
    assert (forge.artifacts / "ddp-perf" / "comment.md").read_text() == "<!-- ddp-perf -->\n"


COMMENTS = "repos/owner/project/issues/12/comments"
OURS = {"url": "https://api.forge.example/7", "user": {"login": "github-actions[bot]"}}
MARKED = "<!-- ddp-perf -->\nold"
HEAD = "0123abc"


def post(forge, comments=(), pulls=((12, HEAD),)):
    """Run the workflow that posts, of a branch `fix` of a fork; return its calls of gh."""
    (forge.directory / "comments.json").write_text(json.dumps(list(comments)))
    found = [{"number": number, "head": {"sha": head}} for number, head in pulls]
    (forge.directory / "pulls.json").write_text(json.dumps(found))
    event = "github.event.workflow_run"
    expressions = {
        "github.event.pull_request.base.sha": "",
        "github.token": "a token",
        "github.repository": "owner/project",
        f"{event}.id": "5",
        f"{event}.head_repository.owner.login": "stranger",
        f"{event}.head_branch": "fix",
        f"{event}.head_sha": HEAD,
    }
    done = run_github(forge, "comment.yml", "comment", expressions)
    assert done.code == 0, done.output
    return forge.note("gh.log").splitlines()


def has_comment(forge):
    artifact = forge.artifacts / "ddp-perf"
    artifact.mkdir(parents=True)
    (artifact / "comment.md").write_text("<!-- ddp-perf -->\nnew\n")


@pytest.mark.parametrize(
    ("comments", "where"),
    [
        ([], f"POST {COMMENTS}"),
        ([{**OURS, "body": MARKED}], f"PATCH {OURS['url']}"),
        ([{**OURS, "body": "other"}], f"POST {COMMENTS}"),
        ([{**OURS, "user": {"login": "stranger"}, "body": MARKED}], f"POST {COMMENTS}"),
    ],
    ids=["first", "again", "of another job", "of a stranger"],
)
def test_one_comment_is_posted_and_then_updated_also_that_of_a_fork(forge, comments, where):
    has_comment(forge)

    found, listed, then = post(forge, comments)

    assert "--raw-field head=stranger:fix" in found
    assert listed.startswith(f"api --paginate {COMMENTS} --jq ")
    assert then == f"api --method {where} --field body=@ddp-perf/comment.md --silent"
    assert forge.note("bodies.md") == "<!-- ddp-perf -->\nnew\n"


def test_a_run_of_an_older_commit_posts_nothing(forge):
    has_comment(forge)

    assert len(post(forge, pulls=[(12, "another")])) == 1


def test_nothing_is_posted_if_several_pull_requests_have_the_head(forge):
    has_comment(forge)

    assert len(post(forge, pulls=[(12, HEAD), (13, HEAD)])) == 1


@pytest.mark.parametrize(
    "text", ["new\n", "<!-- ddp-perf --> x\n", f"<!-- ddp-perf -->\n{'é' * 65_536}"]
)
def test_another_text_or_one_that_github_refuses_is_not_posted(forge, text):
    has_comment(forge)
    (forge.artifacts / "ddp-perf" / "comment.md").write_text(text, "utf-8")

    assert post(forge) == []


def test_nothing_is_posted_without_a_comment_or_of_a_link_to_another_file(forge):
    assert post(forge) == []

    (forge.artifacts / "ddp-perf").mkdir(parents=True)
    (forge.artifacts / "ddp-perf" / "comment.md").symlink_to("/proc/self/environ")
    assert post(forge) == []


def test_the_job_that_may_comment_runs_nothing_of_the_pull_request():
    workflow = load("github/comment.yml")
    checkout, action = workflow["jobs"]["comment"]["steps"]

    assert [*workflow[True]] == ["workflow_run"]  # YAML's "on"
    assert "ref" not in checkout["with"]
    assert action == {"uses": "./", "with": {"command": "comment"}}
    writers = {
        (name, job)
        for name in GITHUB
        for job, stated in load(f"github/{name}")["jobs"].items()
        if stated.get("permissions", {}).get("pull-requests") == "write"
    }
    assert writers == {("comment.yml", "comment"), ("baselines.yml", "propose")}


def test_the_marker_is_that_of_the_comment():
    for path in ("action.yml", "ci/templates/gitlab/.gitlab-ci.yml"):
        assert f'startswith("{MARKER}")' in (REPOSITORY / path).read_text("utf-8")


# ---- the action, in a project of a user ----

NOTING = """\
#!/bin/sh
printf '%s\\n' "$@" >>"$FORGE/${0##*/}.log"
[ "${0##*/}" = python ] || exit "${CODE-0}"
[ "$1" != -c ] || exit "${NO_TORCH-0}"
"""


@pytest.fixture
def act(forge):
    """``act(inputs)`` runs the action in a clone, where python and ddp-perf are stand-ins."""
    for program in ("python", "ddp-perf"):
        forge.script(forge.directory, f"bin/{program}", NOTING)
    root = forge.clone("user", "main")
    base = {"github.event.pull_request.base.sha": "ba5e"}
    return lambda inputs, **env: run_action(forge, root, inputs, base, env=env)


def test_the_action_installs_without_torch_and_runs_the_command(act, forge):
    done = act({"arguments": "-k 'a b' --budget 10m"})

    assert done.code == 0, done.output
    *_, requirement = forge.note("python.log").splitlines()
    assert requirement == str(REPOSITORY)  # and no extra, which would name torch
    given = forge.note("ddp-perf.log").splitlines()
    assert given == ["pr", "--base", "ba5e", "-k", "a b", "--budget", "10m"]


@pytest.mark.parametrize(("code", "ends"), [(1, 1), (75, 0), (4, 4)])
def test_the_action_fails_unless_it_is_green_or_undecided(act, code, ends):
    done = act({}, CODE=str(code))

    assert (done.code, done.outputs) == (ends, {"code": str(code)})
    assert ("::warning" in done.output) == (code == ExitCode.UNDECIDED)


def test_the_action_installs_no_torch_that_nobody_chose(act, forge):
    done = act({}, NO_TORCH="1")

    assert done.code == ExitCode.ERROR
    assert "install the torch that you train with" in done.output
    assert "pip" not in forge.note("python.log")


PROGRAMS = {
    "python": '[ "$2" = pip ] || exec {python} "$@"',
    "ddp-perf": """exec {python} -c 'from ddp_perf.cli.app import app; app()' "$@\"""",
}


@pytest.mark.slow
def test_the_action_compares_a_branch_of_a_users_project_with_its_base(tmp_path):
    (user := tmp_path / "user").mkdir()
    run(user, "ddp-perf init", {0})
    (user / ".gitignore").write_text("artifacts/\n__pycache__/\nbaselines/.*\n")
    (tmp_path / "forge").mkdir()
    forge = Forge(tmp_path / "forge", user)
    for name, line in PROGRAMS.items():
        forge.script(
            forge.directory, f"bin/{name}", f"#!/bin/sh\n{line.format(python=sys.executable)}\n"
        )
    clone, base = forge.clone("author", "main"), forge.head()
    workload = clone / "perf_workload.py"
    workload.write_text(workload.read_text().replace("(batch[0])", "(batch[0].clone())"))
    forge.commit(clone, "A clone")

    small = "--ddp-steps 12 --ddp-world-sizes 1 -k 'work or step_time or cpu_time'"
    done = run_action(
        forge,
        clone,
        {"arguments": f"--tier cpu --budget 120s {small}"},
        {"github.event.pull_request.base.sha": base},
        env={"GITHUB_REPOSITORY": "owner/project", "GITHUB_WORKSPACE": str(clone)},
    )

    assert done.outputs["code"] in ("1", "75"), done.output  # no counts are stored
    comment = (forge.artifacts / "ddp-perf" / "comment.md").read_text("utf-8")
    assert comment.startswith(MARKER)
    assert "more work: +" in comment, done.output
    head = forge.git("rev-parse", "HEAD", at=clone).strip()
    assert f"https://github.com/owner/project/blob/{head}/perf_workload.py#L15" in comment
    assert comment in done.summary


@pytest.mark.parametrize(
    ("code", "notes"), [("0", "[]"), ("75", '[{"id": 3, "author": {"id": 1}, "body": "x"}]')]
)
@pytest.mark.parametrize("token", ["secret", None])
def test_the_duel_of_gitlab_posts_its_comment_if_it_has_a_token(forge, code, notes, token):
    variables = {
        "CI_MERGE_REQUEST_DIFF_BASE_SHA": forge.head(),
        "CI_API_V4_URL": "https://forge.example/api",
        "CI_PROJECT_ID": "5",
        "CI_MERGE_REQUEST_IID": "12",
        "CODE": code,
        **({"COMMENT_TOKEN": token} if token else {}),
    }
    marked = notes.replace("x", "<!-- ddp-perf -->\\nold")
    (forge.directory / "notes.json").write_text(marked)

    done = run_gitlab(forge, "duel", env=variables, commit=duelling(forge))

    assert done.code == int(code), done.output
    base = f"--base {variables['CI_MERGE_REQUEST_DIFF_BASE_SHA']} --tier cpu"
    assert forge.note("pr.log").splitlines() == [base, "token none"]
    calls = forge.note("curl.log").splitlines()
    if token is None:
        assert calls == []
        return
    url = "https://forge.example/api/projects/5/merge_requests/12/notes"
    method, where = ("PUT", f"{url}/3") if "id" in notes else ("POST", url)
    assert f"--request {method}" in calls[-1]
    assert calls[-1].endswith(f" {where}")
    assert forge.note("bodies.md") == "<!-- ddp-perf -->\n"


def test_a_comment_that_gitlab_refuses_is_a_warning(forge):
    variables = {
        "CI_MERGE_REQUEST_DIFF_BASE_SHA": forge.head(),
        "CI_API_V4_URL": "https://forge.example/api",
        "CI_PROJECT_ID": "5",
        "CI_MERGE_REQUEST_IID": "12",
        "CODE": "75",
        "COMMENT_TOKEN": "secret",
    }
    forge.script(forge.directory, "bin/curl", "#!/bin/sh\nexit 22\n")

    done = run_gitlab(forge, "duel", env=variables, commit=duelling(forge))

    assert done.code == ExitCode.UNDECIDED, done.output
    assert "warning: the comment could not be posted" in done.output


# ---- every night, and a pull request with its baselines ----


def sessions(forge, at):
    """Return how many sessions the baseline at a commit has of each case."""
    files = forge.git("ls-tree", "--name-only", at, "baselines/").split()
    (name,) = [name for name in files if name.startswith("baselines/cpu-")]
    cases = json.loads(forge.git("show", f"{at}:{name}"))["cases"]
    return {case: len(stored["sessions"]) for case, stored in cases.items()}


def night(forge, reason="", first=""):
    expressions = {
        "inputs.first": first,
        "inputs.reason": reason,
        "github.run_id": "1",
        "github.run_attempt": "1",
    }
    return run_github(forge, "nightly.yml", "gate", expressions, env=SMALL)


def propose(forge, reason=""):
    expressions = {
        "github.event.workflow_run.head_sha || github.sha": forge.head(),
        "github.event.workflow_run.id || github.run_id": "1",
        "github.event.repository.default_branch": "main",
        "github.token": "a token",
        "inputs.reason": reason,
    }
    return run_github(forge, "baselines.yml", "propose", expressions)


@pytest.mark.slow
def test_each_night_is_proposed_in_one_pull_request_until_it_is_merged(forge):
    first, proposed = night(forge), propose(forge)
    assert first.code == 0, first.output
    assert first.outputs == {"code": "0"}
    assert proposed.code == 0, proposed.output
    before = sessions(forge, "main")
    assert sessions(forge, "training-sessions") == {case: n + 1 for case, n in before.items()}
    (created,) = re.findall(r"^pr create .*$", forge.note("gh.log"), re.MULTILINE)
    assert "--base main --head training-sessions --title Sessions up to 20" in created
    assert "| case | verdict |" in forge.note("bodies.md")

    (forge.directory / "state").write_text("OPEN\n")
    accepted, proposed = night(forge, reason="wider layers, #12"), propose(forge, "wider layers")
    assert accepted.code == 0, accepted.output
    assert proposed.code == 0, proposed.output
    assert sessions(forge, "training-sessions") == {case: n + 2 for case, n in before.items()}
    assert forge.git("rev-list", "--count", "main..training-sessions").strip() == "1"
    changed = forge.git("diff", "main", "training-sessions")
    assert "wider layers, #12" in changed
    assert f'"{forge.head()[:12]}"' in changed  # of the commit, not of changed files
    assert "pr edit training-sessions --title wider layers --body-file" in forge.note("gh.log")
    (file,) = forge.git("diff", "--name-only", "main", "training-sessions").split()
    assert file.startswith("baselines/cpu-")


CUT_OFF = """\
#!/bin/sh
echo stored >artifacts/baselines/cpu-here.json
[ "$(cat /proc/$PPID/comm)" != bash ] || kill -9 $PPID    # not what started the shell
exit 143
"""


def cut_off(forge):
    """Push a ci/nightly that stores something, and ends the shell that runs it, as a timeout."""
    clone = forge.clone("author", "main")
    forge.script(clone, "ci/nightly", CUT_OFF)
    forge.commit(clone, "cut off")
    forge.git("push", "--quiet", "origin", "HEAD:refs/heads/main", at=clone)


ARGUMENTS = """\
#!/bin/sh
printf '%s\\n' "$*" >"$FORGE/nightly.log"
"""


@pytest.mark.parametrize(
    ("first", "reason", "stores"),
    [
        (False, "", ""),  # what ci/nightly does by itself
        (True, "", " --save-baseline"),
        (False, "a reason", " --save-baseline=accept --ddp-reason=a reason"),
    ],
    ids=["each night", "first", "accept"],
)
def test_a_first_session_is_announced_by_hand(forge, first, reason, stores):
    clone = forge.clone("author", "main")
    forge.script(clone, "ci/nightly", ARGUMENTS)
    forge.commit(clone, "a stand-in")
    forge.git("push", "--quiet", "origin", "HEAD:refs/heads/main", at=clone)
    inputs = load("github/nightly.yml")[True]["workflow_dispatch"]["inputs"]  # YAML's "on"
    assert inputs["first"]["type"] == "boolean"
    choices = load("gitlab/.gitlab-ci.yml")["variables"]["FIRST"]
    assert choices["options"] == ["no", "yes"]
    by_hand = {"FIRST": "yes"} if first else {}

    at_github = night(forge, reason, "true" if first else "")
    noted = forge.note("nightly.log")
    at_gitlab = run_gitlab(forge, "nightly", env={**SMALL, **by_hand, "REASON": reason})

    assert (at_github.code, at_gitlab.code) == (0, 0), at_github.output + at_gitlab.output
    stored_in = "-o ddp_baselines=artifacts/baselines"
    assert noted == forge.note("nightly.log") == f"{SMALL['GATE']} {stored_in}{stores}\n"


def test_what_was_stored_before_a_timeout_is_proposed(forge):
    cut_off(forge)

    assert night(forge).code != 0
    assert propose(forge).code == 0
    assert forge.git("show", "training-sessions:baselines/cpu-here.json") == "stored\n"


def test_sessions_that_others_proposed_meanwhile_are_not_overwritten(forge):
    cut_off(forge)
    night(forge)
    forge.git("branch", "training-sessions", "main")  # an accepted session

    refused = propose(forge)
    assert refused.code != 0
    assert "stale info" in refused.output
    night(forge)
    assert propose(forge).code == 0


def test_nothing_but_baselines_is_taken_from_a_patch(forge):
    clone = forge.clone("author", "main")
    for name in ("baselines/new.json", "ci/bench"):
        (clone / name).write_text("new\n")
    forge.git("add", "--all", at=clone)
    patch = forge.git("diff", "--cached", at=clone)
    (forge.artifacts / "nightly").mkdir(parents=True)
    (forge.artifacts / "nightly" / "baselines.patch").write_text(patch)

    assert propose(forge).code == 0
    changed = forge.git("diff", "--name-only", "main", "training-sessions")
    assert changed == "baselines/new.json\n"


def test_nothing_is_proposed_of_a_fork():
    condition = load("github/baselines.yml")["jobs"]["propose"]["if"]

    assert "github.event.workflow_run.event != 'pull_request' &&" in condition
    own = "github.event.workflow_run.head_repository.full_name == github.repository)"
    assert condition.endswith(own)


def test_nothing_is_proposed_if_nothing_was_stored(forge):
    (forge.artifacts / "nightly").mkdir(parents=True)
    (forge.artifacts / "nightly" / "baselines.patch").write_text("")

    assert propose(forge).output == "nothing was stored\n"
    assert forge.note("gh.log") == ""


@pytest.mark.parametrize(
    ("code", "title"),
    [
        ("1", "Training got slower, or is wrong"),
        ("75", "The nightly gate could not decide"),
        ("3", "The nightly gate failed (exit code 3)"),
        ("", "The nightly gate failed (exit code unknown)"),
    ],
)
@pytest.mark.parametrize("is_open", [False, True])
def test_a_night_that_is_not_green_has_an_issue_by_its_exit_code(forge, code, title, is_open):
    expressions = {
        "github.token": "a token",
        "github.repository": "owner/project",
        "github.server_url": "https://forge.example",
        "github.run_id": "17",
        "needs.gate.outputs.code": code,
    }
    if is_open:
        (forge.directory / "issue").write_text("12\n")

    done = run_github(forge, "nightly.yml", "report", expressions)

    assert done.code == 0, done.output
    search, then = forge.note("gh.log").splitlines()
    assert f'"{title}" in:title' in search
    made = "issue comment 12" if is_open else f"issue create --title {title}"
    assert then == f"{made} --body-file body.md"
    assert "https://forge.example/owner/project/actions/runs/17" in forge.note("bodies.md")


# ---- GitLab ----

SERVER = "https://oauth2:secret@forge.example/owner/project.git"


@pytest.mark.slow
def test_the_jobs_of_gitlab_check_measure_and_propose(forge):
    branch(forge, wider)
    wide = forge.head("change")
    ours = {
        "CI_MERGE_REQUEST_DIFF_BASE_SHA": forge.head(),
        "CI_SERVER_HOST": "forge.example",
        "CI_PROJECT_PATH": "owner/project",
        "CI_DEFAULT_BRANCH": "main",
        "CI_PIPELINE_URL": "https://forge.example/pipelines/3",
        "BASELINES_TOKEN": "secret",
        "GITLAB_USER_NAME": "a bot",
        "GITLAB_USER_EMAIL": "bot@example.com",
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": f"url.{forge.remote}.insteadOf",
        "GIT_CONFIG_VALUE_0": SERVER,
    }
    checked = run_gitlab(forge, "pull-request", env=ours)
    assert checked.code == 0, checked.output
    assert (forge.artifacts / "pull-request" / "losses" / "junit.xml").exists()
    labelled = {**ours, "CI_MERGE_REQUEST_LABELS": "bug,other losses"}
    red = run_gitlab(forge, "pull-request", env=labelled, commit=wide)
    assert red.code == 1, red.output

    measured = run_gitlab(forge, "nightly", env=ours | SMALL)
    proposed = run_gitlab(forge, "baselines", shell="sh", env=ours, needs="nightly")
    assert measured.code == 0, measured.output
    assert proposed.code == 0, proposed.output
    before = sessions(forge, "main")
    assert sessions(forge, "training-sessions") == {case: n + 1 for case, n in before.items()}
    options = forge.note("push_options")
    assert "merge_request.create" in options
    assert "merge_request.target=main" in options
    assert "merge_request.title=Sessions up to 20" in options

    accepted = run_gitlab(forge, "nightly", env={**ours, **SMALL, "REASON": "a reason"})
    assert accepted.code == 0, accepted.output
    assert "a reason" in (forge.artifacts / "nightly/nightly/baselines.patch").read_text("utf-8")


def test_gitlab_keeps_what_was_stored_before_a_timeout(forge):
    cut_off(forge)

    assert run_gitlab(forge, "nightly", env=SMALL).code != 0
    patch = forge.artifacts / "nightly" / "nightly" / "baselines.patch"
    assert "cpu-here.json" in patch.read_text()


def test_gitlab_shows_an_undecided_duel_as_a_warning_and_an_undecided_night_as_a_failure():
    """Lost GPUs would pass for months."""
    jobs = load("gitlab/.gitlab-ci.yml")

    assert jobs["duel"]["allow_failure"] == {"exit_codes": ExitCode.UNDECIDED}
    assert "allow_failure" not in jobs["nightly"]


def test_gitlab_measures_and_proposes_a_first_session_that_is_started_by_hand():
    jobs = load("gitlab/.gitlab-ci.yml")
    by_hand = '$CI_PIPELINE_SOURCE == "web" && ($REASON != "" || $FIRST == "yes")'

    for job in ("nightly", "baselines"):
        assert by_hand in [rule["if"] for rule in jobs[job]["rules"]]


def test_gitlab_proposes_on_the_default_branch_only():
    first, *_ = load("gitlab/.gitlab-ci.yml")["baselines"]["rules"]

    assert first == {"if": "$CI_COMMIT_BRANCH != $CI_DEFAULT_BRANCH", "when": "never"}
