"""The command itself."""

from __future__ import annotations

import re

from typer.testing import CliRunner

from ddp_perf.cli.app import app
from tests.projects import REPOSITORY


def test_the_version_is_that_of_the_project():
    project = (REPOSITORY / "pyproject.toml").read_text("utf-8")
    (stated,) = re.findall(r'^version = "(.+)"$', project, re.MULTILINE)

    done = CliRunner().invoke(app, ["--version"])

    assert (done.exit_code, done.stdout) == (0, f"ddp-perf {stated}\n")
