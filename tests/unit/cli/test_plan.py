"""``ddp-perf plan``: its text, its JSON, its exit codes; and the tables of docs/scale.md."""

from __future__ import annotations

import json
import re
from pathlib import Path

import jsonschema
import pytest
from typer.testing import CliRunner

from ddp_perf.cli.app import app
from ddp_perf.plan.text import fleet_plan_schema

DOCS = Path(__file__).parents[3] / "docs"
SMALL, LARGE = "docs/fleets/256-gpus.yaml", "docs/fleets/16384-gpus.yaml"


@pytest.fixture(autouse=True)
def _at_the_root(monkeypatch):
    monkeypatch.chdir(DOCS.parent)
    monkeypatch.setenv("COLUMNS", "100")


def run(*arguments):
    return CliRunner().invoke(app, ["plan", *map(str, arguments)])


@pytest.mark.parametrize("fleet", [SMALL, LARGE])
def test_docs_show_what_the_command_prints(fleet):
    page = (DOCS / "scale.md").read_text("utf-8")
    shown = re.search(
        rf"plan --fleet {re.escape(fleet)}\n```\n\n```text\n(.*?)\n```", page, re.DOTALL
    )

    assert shown is not None, f"docs/scale.md shows no plan of {fleet}"
    assert shown[1] == run("--fleet", fleet).stdout.rstrip()


def test_a_fleet_whose_aims_are_reached_passes():
    done = run("--fleet", SMALL)

    assert done.exit_code == 0
    assert "RECOMMENDED: every night" in done.stdout
    assert "reached: everything that was asked" in done.stdout


def test_a_fleet_that_misses_something_is_undecided_and_names_what_it_takes():
    done = run("--fleet", LARGE)

    assert done.exit_code == 75
    text = " ".join(done.stdout.split())
    assert "not reached: text_transformer on 128 nodes: the aim for the code needs" in text
    assert "every week, on the same nodes" in text


def test_every_assumption_has_its_source():
    text = " ".join(run("--fleet", SMALL).stdout.split())

    assert text.count("(stated)") == 5  # four kinds of noise, and how long a launch takes
    assert "modelled: normal noise" in text


def test_the_plan_states_what_the_gate_leaves_to_the_scheduler_and_the_rate_of_each_session():
    text = " ".join(run("--fleet", SMALL).stdout.split())

    assert "your scheduler chooses these nodes" in text
    assert "each node that is slow is measured every night until it is mended: 6 GPU-min" in text
    assert "each_node launches on one node after the other" in text
    assert text.count("--ddp-false-alarm-rate 0.005") == 2


def test_the_plan_is_written_as_json(tmp_path):
    path = tmp_path / "plan.json"

    done = run("--fleet", SMALL, "--json", path)

    plan = json.loads(path.read_text("utf-8"))
    jsonschema.validate(plan, fleet_plan_schema())
    assert plan["reached"] is True
    assert plan["gpu_minutes_per_night"] <= 2000
    assert f"written: {path}" in done.stdout


def test_no_line_is_wider_than_80_columns(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")

    assert max(map(len, run("--fleet", LARGE).stdout.splitlines())) <= 80


def test_a_file_that_is_missing_is_one_line():
    done = run("--fleet", "none.yaml")

    assert done.exit_code == 4
    assert done.stderr.startswith("ddp-perf: none.yaml: cannot be read")


def test_a_fleet_is_required():
    assert run().exit_code == 4
