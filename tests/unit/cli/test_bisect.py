"""Arguments of ``ddp-perf bisect`` that are refused before anything is launched."""

from __future__ import annotations

import subprocess

import pytest
from typer.testing import CliRunner

from ddp_perf.cli.app import app
from tests.bisect_repository import CASE, RowsRepository


@pytest.fixture
def bisect(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("DDP_PERF_LEASES", str(tmp_path / "leases"))
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    RowsRepository(commits=2, slow=1, more=2).write(tmp_path / "project")
    subprocess.run(["git", "rm", "-rq", "bench_configs"], check=True)
    who = ["-c", "user.name=Ada", "-c", "user.email=ada@example.org"]
    subprocess.run(["git", *who, "commit", "-qm", "Remove the suite"], check=True)

    def run(**options):
        given = {"good": "good", "bad": "main~1", "case": CASE, **options}
        arguments = [text for name, value in given.items() for text in (f"--{name}", value)]
        done = CliRunner().invoke(app, ["bisect", *arguments])
        return done.exit_code, " ".join(done.stderr.split())

    return run


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"budget": "soon"}, "--budget: 'soon' is not a duration"),
        ({"good": "main~1", "bad": "good"}, "is not an ancestor of --bad"),
        ({"bad": "mian"}, "--bad: mian: no revision"),
        ({"bad": "."}, "--bad: . is the tree, not a commit; commit it, and give HEAD"),
        ({"case": "other"}, f"bench_configs/ has the case other; there are: {CASE}"),
        ({"emulate": "0"}, "--emulate 0: it is not a list of ranks"),
        ({"network": "intra=1GB/s"}, "--network: it is that of emulated ranks; add --emulate"),
        ({"emulate": "8", "network": "intra=1GB/s"}, f"bench_configs/ has the case {CASE}"),
        ({"bad": "main"}, f"--bad: no suite of bench_configs/ has the case {CASE}"),
    ],
)
def test_what_cannot_be_searched_is_refused(bisect, options, said):
    code, error = bisect(**options)

    assert code == 4
    assert said in error


def test_versions_of_torch_are_no_commits_too(bisect):
    code, error = bisect(torch="2.11.0..2.13.0")

    assert code == 4
    assert "--torch has both ends; leave --good, --bad" in error
