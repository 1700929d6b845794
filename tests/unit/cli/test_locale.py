"""The output of the command is UTF-8 in every locale, as JSON requires."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from ddp_perf.cli.app import app
from tests.projects import REPOSITORY


@pytest.fixture(params=["ascii", "latin-1", "utf-8"])
def run(request):
    """``run(argument, …)`` calls the command where the locale has this encoding."""
    return lambda *arguments: CliRunner(charset=request.param).invoke(app, map(str, arguments))


def test_a_table_is_printed_in_every_locale(run):
    done = run("baseline", "--baselines", REPOSITORY / "baselines", "list")

    assert done.exit_code == 0
    assert "─────" in done.stdout_bytes.decode("utf-8")


def test_an_error_is_printed_in_every_locale(run, tmp_path):
    done = run("trace", tmp_path / "größe–.json")

    assert done.exit_code == 4
    assert "größe–.json" in done.stderr_bytes.decode("utf-8")
