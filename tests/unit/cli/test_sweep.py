"""``ddp-perf sweep``: its output, files and exit codes, on a simulated machine."""

from __future__ import annotations

import contextlib
import json
import re

import jsonschema
import pytest
from typer.testing import CliRunner

from ddp_perf.cli.app import app
from ddp_perf.errors import LaunchError
from tests.builders import make_capacity
from tests.projects import REPOSITORY
from tests.unit.duel.sweep.sweeps import PlayedMachine

SUITE = """
suite: quick
tier: cpu
workload: mlp
model: {input_dim: 16, hidden_dim: 32, output_dim: 8}
world_sizes: [1, 2]
batch_sizes: [64]
steps: 12
warmup: 2
"""
CASE = "mlp-ddp-fp32-ws2-b64"


def cost(case):
    threads = {"1": 1.0, "2": 0.85}[case.env.get("OMP_NUM_THREADS", "1")]
    return threads * {1: 1.3, 5: 0.9, 25: 1.0}[case.training.ddp.bucket_cap_mb]


class Command:
    """The command in a project, whose launches each take two seconds of a fake clock."""

    def __init__(self, directory, monkeypatch):
        self.directory, self.machine = directory, PlayedMachine(cost)
        (directory / "bench_configs").mkdir()
        (directory / "bench_configs" / "quick.yaml").write_text(SUITE)
        monkeypatch.chdir(directory)
        monkeypatch.setattr("time.monotonic", lambda: self.machine.now)
        monkeypatch.setattr("ddp_perf.cli.sweep.find_capacity", lambda: make_capacity(cores=4))
        monkeypatch.setattr("ddp_perf.cli.sweep.ServerLauncher", lambda: self.machine.launcher())
        monkeypatch.setattr("ddp_perf.session.measure.machine.machine_lease", self._lease)

    def __call__(self, *arguments):
        return CliRunner().invoke(app, ["sweep", *arguments], env={"COLUMNS": "120"})

    def json(self):
        (path,) = (self.directory / "artifacts" / "sweep").glob("*.json")
        return json.loads(path.read_text())

    @contextlib.contextmanager
    def _lease(self, **options):
        yield


@pytest.fixture
def sweep(tmp_path, monkeypatch):
    return Command(tmp_path, monkeypatch)


def unwrapped(done):
    return " ".join(done.stdout.split())


def test_the_best_setting_is_printed_with_the_lines_of_the_suite(sweep):
    done = sweep(CASE, "bucket_cap_mb=1,5", "OMP_NUM_THREADS=1,2", "NCCL_ALGO=Ring,Tree")

    assert done.exit_code == 0, done.output
    assert "  ddp:\n    bucket_cap_mb: 5\n  env:\n    OMP_NUM_THREADS: '2'\n" in done.stdout
    name = r"artifacts/sweep/[-T0-9]+"
    assert re.search(rf"written: {name}\.json, {name}\.png", unwrapped(done))
    (plot,) = (sweep.directory / "artifacts" / "sweep").glob("*.png")
    assert plot.stat().st_size > 1000


def test_the_json_file_follows_its_schema(sweep):
    done = sweep(CASE, "bucket_cap_mb=1,5", "--json")

    schema = json.loads((REPOSITORY / "docs" / "sweep.schema.json").read_text())
    jsonschema.validate(sweep.json(), schema)
    assert json.loads(done.stdout) == sweep.json()
    assert sweep.json()["verdict"]["outcome"] == "FASTER"


def test_the_suites_own_setting_may_be_the_best(sweep):
    sweep.machine.cost = lambda case: 1.0 if case.training.ddp.bucket_cap_mb == 25 else 1.2

    done = sweep(CASE, "bucket_cap_mb=1,5")

    assert done.exit_code == 0
    assert "The suite's own setting is the best" in unwrapped(done)
    assert "lines for the file" not in done.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["mlp-ddp-fp32-ws2-b6", "bucket_cap_mb=5"], "did you mean 'mlp-ddp-fp32-ws2-b64'?"),
        ([CASE], "nothing to sweep"),
        ([CASE, "bucket_cap=5"], "did you mean 'bucket_cap_mb'?"),
        ([CASE, "bucket_cap_mb=5", "--budget", "soon"], "--budget: 'soon' is not a duration"),
        ([CASE, "--file", "none.yaml"], "none.yaml: cannot be read"),
    ],
)
def test_a_mistake_is_a_usage_error_before_any_launch(sweep, arguments, said):
    done = sweep(*arguments)

    assert done.exit_code == 4
    assert said in done.stderr
    assert sweep.machine.requests == []


def test_a_budget_that_is_too_short_is_undecided(sweep):
    done = sweep(CASE, "bucket_cap_mb=1,5", "--budget", "3s")

    assert done.exit_code == 75
    assert "Not finished" in unwrapped(done)


def test_an_interrupt_keeps_what_was_measured(sweep):
    def interrupted(case):
        if sweep.machine.now > 100:
            raise KeyboardInterrupt
        return cost(case)

    sweep.machine.cost = interrupted

    done = sweep(CASE, "bucket_cap_mb=1,5")

    assert done.exit_code == 130
    assert 15 <= sweep.json()["base_launches"] <= 17
    assert not sweep.json()["complete"]
    assert sweep.machine.open == set()


def test_the_same_command_goes_on_after_an_interrupt_and_begins_anew_once_it_is_finished(sweep):
    def interrupted(case):
        if sweep.machine.now > 100:
            raise KeyboardInterrupt
        return cost(case)

    sweep.machine.cost = interrupted
    sweep(CASE, "bucket_cap_mb=1,5")
    sweep.machine.cost, before = cost, len(sweep.machine.requests) - 1

    done = sweep(CASE, "bucket_cap_mb=1,5", "--json")

    assert f"goes on after {before} launches" in done.stderr
    result = json.loads(done.stdout)
    assert result["complete"]
    assert result["base_launches"] > before / 3
    assert sweep.machine.now <= 600 + 20  # the budget of both runs
    assert "goes on" not in sweep(CASE, "bucket_cap_mb=1,5").stderr


def test_an_output_that_cannot_be_written_is_refused_before_any_launch(sweep):
    (sweep.directory / "file").write_text("")

    done = sweep(CASE, "bucket_cap_mb=1,5", "--output", "file/sweep")

    assert done.exit_code == 4
    assert "file/sweep: cannot be written" in done.stderr
    assert sweep.machine.requests == []


@pytest.mark.slow
def test_a_setting_whose_server_does_not_start_fails_alone(sweep):
    answer = sweep.machine.answer

    def no_server(request):
        if request.case.env.get("OMP_NUM_THREADS") == "2":
            raise LaunchError("the server ended before it answered")
        return answer(request)

    sweep.machine.answer = no_server

    done = sweep(CASE, "OMP_NUM_THREADS=1,2")

    assert done.exit_code == 0, done.output
    assert "failed: OMP_NUM_THREADS=2: the server ended before it answered" in unwrapped(done)


def test_without_a_setting_that_works_nothing_is_judged(sweep):
    sweep.machine.broken = lambda case: "OMP_NUM_THREADS" in case.env

    done = sweep(CASE, "OMP_NUM_THREADS=1,2")

    assert done.exit_code == 75
    assert "Every setting failed" in unwrapped(done)
