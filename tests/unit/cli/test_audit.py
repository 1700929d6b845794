"""``ddp-perf audit``: contradictions with both figures, and the exit code."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from ddp_perf.baselines.store import BaselineStore
from ddp_perf.cli.app import app
from ddp_perf.core.published import PublishedRow, PublishedTable
from tests.builders import make_baseline, make_case_baseline, make_cases, make_session


def run(*arguments):
    return CliRunner().invoke(app, ["audit", *map(str, arguments)])


@pytest.fixture
def write(tmp_path, monkeypatch):
    """``write(key, efficiency)`` stores a table of two rows in baselines/."""
    monkeypatch.chdir(tmp_path)

    def make(key, efficiency):
        rows = (
            PublishedRow(world_size=1, throughput=100),
            PublishedRow(world_size=2, throughput=160, efficiency=efficiency),
        )
        table = PublishedTable(name="t", document="A Report", where="w", hardware="h", rows=rows)
        baseline = make_baseline(accelerator=key, published=(table,))
        return BaselineStore(tmp_path / "baselines").update(key, lambda _: baseline)

    return make


def test_audit_without_a_contradiction_exits_with_0(write):
    write("x9", 0.8)

    done = run()

    assert done.exit_code == 0, done.output
    assert "A Report" in done.stdout
    assert done.stdout.endswith("1 table, 2 rows, 0 measured cases: 0 contradictions\n")


def test_a_wrong_efficiency_is_reported_with_both_figures(write):
    path = write("x9", 0.9)

    done = run(path)

    assert done.exit_code == 1
    assert "2 GPUs: efficiency 0.9 is stated, 0.8 follows from throughput" in done.stdout


def test_json_has_the_same_content(write):
    audit = json.loads(run(write("x9", 0.9), "--json").stdout)

    ((found,),) = [table["contradictions"] for table in audit["tables"]]
    assert (found["what"], found["stated"]) == ("efficiency", 0.9)


@pytest.mark.parametrize("name", ["nowhere.json", "broken.json"])
def test_a_file_that_cannot_be_read_is_refused_in_one_line(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken.json").write_text("{")

    done = run(name)

    assert done.exit_code == 4
    assert name in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_audit_without_a_baseline_file_is_an_error(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    assert run().exit_code == 4


def test_measured_figures_are_compared_with_each_other(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    one, two = make_cases()
    cases = {
        one.id: make_case_baseline(one, make_session([0.010] * 3)),
        two.id: make_case_baseline(two, make_session([0.012] * 3, efficiency=1.5)),
    }
    baseline = make_baseline(cases, accelerator="x9")
    BaselineStore(tmp_path / "baselines").update("x9", lambda _: baseline)

    done = run()

    assert done.exit_code == 1
    assert "baselines/x9.json: 2 measured cases\n" in done.stdout
    assert "step ÷ ideal step 1.5 is stated, 1.2 follows from step time" in " ".join(
        done.stdout.split()
    )
    (measured,) = json.loads(run("--json").stdout)["measured"]
    assert {found["case_id"] for found in measured["contradictions"]} == {two.id}
