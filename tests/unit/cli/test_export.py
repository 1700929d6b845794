"""``ddp-perf export``: the sessions of a history or of results files, and errors in one line."""

from __future__ import annotations

import contextlib
import csv
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from ddp_perf.cli.app import app
from ddp_perf.history.store import HistoryStore
from ddp_perf.session.result import write_results
from tests.builders import make_case, make_measurement, make_result
from tests.recorded_sessions import make_recorded_session

CASE = make_case()
URL = "sqlite:///artifacts/history.sqlite"
FILES = ["bencher", "csv", "github-action-benchmark", "otlp", "prometheus"]


def run(*arguments):
    return CliRunner().invoke(app, ["export", *map(str, arguments)])


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def append(*records):
    with contextlib.closing(HistoryStore(URL)) as store:
        store.append(records)


@pytest.fixture
def history():
    """The default history, with two sessions."""
    append(*(make_recorded_session(CASE, number, 0.01) for number in range(2)))


@pytest.mark.usefixtures("history")
@pytest.mark.parametrize("name", FILES)
def test_a_format_of_one_file_replaces_it(here, name):
    (here / "new").mkdir()
    (here / "new" / "file").write_text("old")

    done = run(name, "--out", "new/file")

    assert (done.exit_code, done.output) == (0, "2 sessions in new/file\n")
    assert CASE.id in (here / "new" / "file").read_text("utf-8")


@pytest.mark.usefixtures("history")
def test_otava_names_the_command_that_reads_its_directory(here):
    done = run("otava", "--out", "a/b")

    assert done.exit_code == 0
    assert done.output == (
        "2 sessions in a/b: cd a/b && otava analyze ddp-perf --config-file otava.yaml\n"
    )
    assert (here / "a" / "b" / "otava.yaml").is_file()


def test_asv_has_the_sessions_of_this_repository(here):
    git = ("git", "-c", "user.name=A", "-c", "user.email=a@example.org")
    subprocess.run([*git, "init", "-q", "-b", "main"], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "first"], check=True)
    commit = subprocess.check_output([*git, "rev-parse", "HEAD"], text=True).strip()
    append(make_recorded_session(CASE, 0, 0.01, commit=commit[:12]))

    done = run("asv", "--out", "asv")

    assert (done.exit_code, done.output) == (
        0,
        "1 session in asv: cd asv && asv publish && asv preview\n",
    )
    names = [path.name for path in (here / "asv" / "results").rglob("*.json")]
    assert sorted(name.partition("-")[0] for name in names) == sorted(
        ["benchmarks.json", "machine.json", commit[:8]]
    )


def test_results_files_are_exported_oldest_first(here):
    for number, name in enumerate(["new.json", "old.json"]):
        date = f"2026-01-0{2 - number}T00:00:00+00:00"
        result = make_result([make_measurement(CASE, [0.01])], date=date)
        write_results(here / name, [result], complete=True)

    done = run("csv", "new.json", "old.json", "--out", "all.csv")

    assert (done.exit_code, done.output) == (0, "2 sessions in all.csv\n")
    rows = csv.DictReader((here / "all.csv").read_text("utf-8").splitlines())
    assert [*dict.fromkeys(row["date"][:10] for row in rows)] == ["2026-01-01", "2026-01-02"]


@pytest.mark.filterwarnings("default")  # of MLflow, by the newest SQLAlchemy
@pytest.mark.usefixtures("history")
def test_mlflow_has_each_session_once_at_its_time(here):
    mlflow = pytest.importorskip("mlflow", reason="pip install mlflow-skinny alembic")
    store = f"sqlite:///{here}/mlflow.db"
    for _ in range(2):
        done = run("mlflow", "--out", store)
        assert done.exit_code == 0, done.output

    client = mlflow.MlflowClient(tracking_uri=store)
    (experiment,) = (
        one.experiment_id for one in client.search_experiments() if one.name != "Default"
    )
    runs = client.search_runs([experiment], order_by=["start_time"])
    assert [run.data.metrics for run in runs] == [{f"{CASE.id}/step_time": 0.01}] * 2
    assert [run.info.run_name[:10] for run in runs] == ["2026-01-01", "2026-01-02"]
    assert runs[1].info.start_time - runs[0].info.start_time == 86_400_000


@pytest.mark.usefixtures("history")
def test_mlflow_without_its_client_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "mlflow", None)

    done = run("mlflow", "--out", "sqlite:///mlflow.db")

    assert (done.exit_code, done.output) == (
        4,
        "ddp-perf: export mlflow: pip install 'ddp-perf[mlflow]'\n",
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["promtheus"], "'promtheus' is not one of asv, bencher, csv, github-action-benchmark,"),
        (["otavo"], "did you mean 'otava'?"),
        (["csv", "--history", "sqlite:///no.sqlite"], "no.sqlite: there is no such file;"),
        (["csv", "a.json", "--history", URL], "--history and RESULTS.json: give one of them"),
        (["csv", "a.json"], "a.json: "),
    ],
)
def test_a_mistake_is_one_line(arguments, message):
    done = run(*arguments, "--out", "file")

    assert done.exit_code == 4
    assert message in done.output
    assert done.output.count("\n") == 1


def test_a_history_without_a_session_is_refused():
    append()

    done = run("csv", "--out", "file")

    assert (done.exit_code, done.output) == (
        4,
        f"ddp-perf: {URL}: it has no session; pytest --ddp-history adds them\n",
    )


@pytest.mark.usefixtures("history")
def test_asv_outside_any_repository_is_refused(monkeypatch, here):
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(here.parent))

    done = run("asv", "--out", "asv")

    assert done.exit_code == 4
    assert "not a git repository" in done.output


@pytest.mark.usefixtures("history")
@pytest.mark.parametrize("name", ["csv", "otava"])
def test_a_path_that_cannot_be_written_is_named(here, name):
    (here / "taken").write_text("a file")

    done = run(name, "--out", "taken/out")

    assert done.exit_code == 4
    assert "taken" in done.output
    assert "cannot be written: " in done.output
    assert (here / "taken").read_text() == "a file"
