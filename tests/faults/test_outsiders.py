"""No secret that a session meets is in what it prints, writes, stores or makes pages of."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

import tests.late_imports  # noqa: F401
from ddp_perf.cli.app import app
from tests.faults.outsiders import (
    CANARY,
    MEASURED,
    REFUSED,
    found_in,
    make_project,
    session,
)


def test_a_session_its_site_and_its_exports_have_no_secret(tmp_path, monkeypatch):
    make_project(tmp_path)
    monkeypatch.chdir(tmp_path)
    history = "sqlite:///history.sqlite"
    printed = [session(tmp_path, *MEASURED, "--ddp-config=script.yaml", f"--ddp-history={history}")]
    for words in (["site"], ["export", "csv", "--out=all.csv"]):
        printed.append(CliRunner().invoke(app, [*words, f"--history={history}"]).output)

    wrote = {file.name for file in tmp_path.rglob("*")}
    assert {"results.json", "index.html", "history.sqlite", "all.csv"} <= wrote, printed
    assert (tmp_path / "site" / "index.html").exists(), printed
    assert [text for text in printed if CANARY in text] == []
    assert list(found_in(tmp_path)) == []


@pytest.mark.parametrize("refused", REFUSED, ids=lambda refused: refused.said)
def test_a_secret_where_none_may_be_is_refused_without_it(pytester, monkeypatch, refused):
    make_project(pytester.path)
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)

    if refused.program == "pytest":
        done = pytester.runpytest("-m", "perf and cpu", *refused.arguments)
        said = "\n".join([*done.outlines, *done.errlines])
    else:
        done = CliRunner().invoke(app, refused.arguments)
        said = done.output or repr(done.exception)

    assert refused.said in said
    assert CANARY not in said
    assert list(found_in(pytester.path)) == []
