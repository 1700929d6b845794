"""No secret that a session meets is in what it prints, writes, stores or makes pages of."""

from __future__ import annotations

import pytest

from tests.faults.outsiders import (
    CANARY,
    NOTIFIED,
    REFUSED,
    command,
    found_in,
    make_project,
    session,
)


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    path = tmp_path_factory.mktemp("project")
    make_project(path)
    return path


def test_a_session_its_site_and_its_exports_have_no_secret(project):
    history = "sqlite:///history.sqlite"
    printed = [
        session(project, f"--ddp-history={history}", "--ddp-report=report", *NOTIFIED),
        command(project, "site", "--history", history),
        command(project, "export", "csv", "--history", history, "--out", "all.csv"),
    ]

    wrote = {file.name for file in project.rglob("*")}
    assert {"results.json", "index.html", "history.sqlite", "all.csv"} <= wrote, printed
    assert (project / "site" / "index.html").exists(), printed
    assert [text for text in printed if CANARY in text] == []
    assert list(found_in(project)) == []


@pytest.mark.parametrize(("option", "named"), REFUSED.items(), ids=map(str, range(len(REFUSED))))
def test_an_option_with_a_secret_is_refused_without_it(project, option, named):
    said = session(project, option)

    assert named in said
    assert CANARY not in said
