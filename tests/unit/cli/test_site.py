"""The command writes the pages of a history, and refuses what has none."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from ddp_perf.cli.app import app
from ddp_perf.history.store import HistoryStore
from tests.histories import fill_history

URL = "sqlite:///h.sqlite"


def run(*arguments: str):
    return CliRunner().invoke(app, ["site", *arguments])


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_it_writes_the_pages_and_names_the_first(here):
    fill_history(URL, cases=2, sessions=14)

    done = run("--history", URL, "--out", "public")

    assert done.exit_code == 0, done.output
    assert done.stdout == "3 cases: public/index.html\n"
    names = {"index.html", "regressions.html", "machines.html", "gate.html", "charts.js", "cases"}
    assert {path.name for path in (here / "public").iterdir()} == names


def test_a_history_without_a_session_is_refused():
    HistoryStore(URL).close()

    done = run("--history", URL)

    assert done.exit_code == 4
    assert "it has no session; pytest --ddp-history appends one" in done.stderr


def test_a_history_that_is_not_there_is_refused_and_not_made(here):
    done = run("--history", URL)

    assert done.exit_code == 4
    assert "there is no such file" in done.stderr
    assert list(here.iterdir()) == []


def test_a_directory_that_cannot_be_written_is_named(here):
    fill_history(URL, cases=1, sessions=3)
    (here / "public").write_text("a file", encoding="utf-8")

    done = run("--history", URL, "--out", "public")

    assert done.exit_code == 4
    assert "public" in done.stderr
