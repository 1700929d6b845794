"""``ddp-perf duel``: its output, files and exit codes, with played sides."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import signal

import pytest
import yaml
from typer.testing import CliRunner

from ddp_perf.cli.app import app
from ddp_perf.duel.open_sides import OpenSide
from ddp_perf.duel.values import read_duel
from ddp_perf.errors import LaunchError, ResultsError
from ddp_perf.report.directory import write_duel_report
from tests.builders import SUITE, make_capacity
from tests.unit.duel.played_sides import Clock, PlayedSide, make_prepared


class Command:
    """The command on a played machine, in which all sides have the same suites."""

    def __init__(self, directory, monkeypatch):
        self.directory = directory
        self.b = {}
        self.opened = 0
        self.on_prepare = lambda: None
        self._clock = Clock(monkeypatch)
        (directory / "bench_configs").mkdir()
        suite = yaml.safe_dump({**SUITE, "world_sizes": [1]})
        (directory / "bench_configs" / "quick.yaml").write_text(suite, encoding="utf-8")
        monkeypatch.chdir(directory)
        monkeypatch.setattr("ddp_perf.cli.duel.find_capacity", make_capacity)
        monkeypatch.setattr("ddp_perf.cli.duel.prepare", self._prepare)
        monkeypatch.setattr("ddp_perf.cli.duel.open_sides", self._open)

    def __call__(self, *arguments):
        return CliRunner().invoke(app, ["duel", *arguments], env={"COLUMNS": "200"})

    def result(self):
        (path,) = (self.directory / "artifacts" / "duel").glob("*.json")
        return read_duel(path)

    @contextlib.contextmanager
    def _prepare(self, side, root, *, on_progress):
        self.on_prepare()
        yield make_prepared(side.name, root, side=side)

    @contextlib.contextmanager
    def _open(self, a, b, capacity, *, on_wait):
        self.opened += 1
        yield (
            OpenSide(a, PlayedSide(self._clock, 1)),
            OpenSide(b, PlayedSide(self._clock, 2, **self.b)),
        )


@pytest.fixture
def duel(tmp_path, monkeypatch):
    return Command(tmp_path, monkeypatch)


@pytest.mark.parametrize(
    ("b", "code", "said"),
    [
        pytest.param({}, 0, "EQUIVALENT", id="equal"),
        pytest.param({"slower": 0.8}, 0, "FASTER", id="faster"),
        pytest.param({"slower": 1.2}, 1, "SLOWER", id="slower"),
        pytest.param({"fails_at": 1}, 1, "exited with code 3", id="broken"),
        pytest.param({"noise": 0.5}, 75, "UNDECIDED", id="noisy"),
    ],
)
def test_the_exit_code_is_the_outcome(duel, b, code, said):
    duel.b = b

    done = duel(".", "--budget", "30s")

    assert done.exit_code == code, done.output
    assert said in done.stdout
    assert duel.result().complete


def test_json_is_all_that_stdout_has(duel):
    done = duel(".", "--json")

    assert json.loads(done.stdout)
    assert "written: artifacts/duel/" in done.stderr


def test_a_report_is_written(duel):
    done = duel(".", "--report", "report")

    assert sorted(path.name for path in (duel.directory / "report").iterdir()) == [
        "duel.gl-code-quality-report.json",
        "duel.html",
        "duel.json",
        "duel.md",
    ]
    assert "report/duel.html" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["--budget", "soon"], "--budget: "),
        (["--tolerance", "1"], "--tolerance: 1.0 is not between 0 and 1"),
        (["--case", "mlp-none-fp32-ws1-b63"], "no side has such a case; did you mean"),
        (["--config", "bench_configs/quack.yaml"], "no such suite file; did you mean"),
    ],
)
def test_an_argument_is_refused_before_the_machine_is_leased(duel, arguments, error):
    done = duel(".", *arguments)

    assert done.exit_code == 4
    assert error in done.stderr
    assert not duel.opened


def test_a_budget_without_room_for_a_named_case_is_refused_with_one_that_would_do(duel):
    done = duel(".", "--case", "mlp-none-fp32-ws1-b64", "--budget", "10s")

    assert done.exit_code == 4
    assert "raise it to 30s" in done.stderr


def test_cases_that_nobody_named_are_left_out_with_the_command_that_compares_them(duel):
    suite = yaml.safe_dump({**SUITE, "world_sizes": [1], "batch_sizes": [64, 32]})
    (duel.directory / "bench_configs" / "quick.yaml").write_text(suite, encoding="utf-8")

    done = duel(".", "--budget", "30s")

    assert done.exit_code == 0, done.output
    assert "left out: 1 case: the budget of 30 s turned out to have no room" in done.stdout
    assert done.stdout.splitlines()[-1] == (
        "next: ddp-perf duel . . --case mlp-none-fp32-ws1-b32 --budget 1m"
    )


def test_the_budget_that_an_undecided_duel_advises_is_accepted_and_decides(duel):
    """Nothing but the clock shows that the server starts for 10 s, and each launch waits for 3."""
    duel.b = {"noise": 0.15, "slower": 1.15, "start_s": 10.0, "launch_s": 4.0}

    first = duel(".", "--budget", "60s")
    command = first.stdout.splitlines()[-1].removeprefix("next: ddp-perf duel . ")
    again = duel(*shlex.split(command))

    assert "UNDECIDED" in first.stdout
    assert again.exit_code == 1, again.output


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupt_leaves_a_report_of_what_was_measured(duel, monkeypatch, number, code):
    launch = PlayedSide.launch

    def interrupted(side, request):
        if len(side.asked) == 9:
            os.kill(os.getpid(), number)
        return launch(side, request)

    monkeypatch.setattr(PlayedSide, "launch", interrupted)
    duel.b = {"noise": 0.3}

    done = duel(".")

    assert done.exit_code == code, done.output
    assert not duel.result().complete
    assert duel.result().cases[0].pairs
    assert "UNDECIDED" in done.stdout


def test_the_same_command_goes_on_after_an_interrupt_and_begins_anew_once_it_is_finished(
    duel, monkeypatch
):
    launch = PlayedSide.launch

    def interrupted(side, request):
        if len(side.asked) == 9:
            raise KeyboardInterrupt
        return launch(side, request)

    with monkeypatch.context() as patched:
        patched.setattr(PlayedSide, "launch", interrupted)
        ended = duel(".")
    assert "interrupted; run the same command again to go on" in ended.stderr

    done = duel(".")

    assert re.search(r"goes on after \d+ launches of \S+jsonl", done.stderr)
    assert done.exit_code == 0, done.output
    assert "goes on" not in duel(".").stderr
    assert not list(duel.directory.rglob("*.jsonl"))


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupt_while_sides_are_prepared_has_its_exit_code(duel, number, code):
    duel.on_prepare = lambda: os.kill(os.getpid(), number)

    assert duel(".").exit_code == code
    assert not duel.opened


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupt_while_the_report_is_written_has_its_exit_code(
    duel, monkeypatch, number, code
):
    write, calls = write_duel_report, []

    def interrupted(directory, found):
        calls.append(directory)
        if len(calls) == 1:
            os.kill(os.getpid(), number)
        return write(directory, found)

    monkeypatch.setattr("ddp_perf.cli.duel.write_duel_report", interrupted)

    assert duel(".", "--report", "report").exit_code == code
    assert (duel.directory / "report" / "duel.html").exists()


def test_an_error_in_the_middle_names_the_file_with_what_was_measured(duel, monkeypatch):
    launch = PlayedSide.launch

    def lost(side, request):
        if len(side.asked) == 9:
            raise LaunchError("no memory is left")
        return launch(side, request)

    monkeypatch.setattr(PlayedSide, "launch", lost)

    done = duel(".")

    assert done.exit_code == 4
    assert "what was measured is in artifacts/duel/" in done.stderr
    assert duel.result().cases[0].pairs


def test_a_report_that_cannot_be_written_loses_no_result(duel, monkeypatch):
    def full(directory, found):
        raise ResultsError(f"{directory}: no space left")

    monkeypatch.setattr("ddp_perf.cli.duel.write_duel_report", full)

    done = duel(".", "--report", "report")

    assert done.exit_code == 4
    assert "EQUIVALENT" in done.stdout
    assert "no space left" in done.stderr


@pytest.mark.parametrize("name", ["artifacts", "report"])
def test_a_directory_that_cannot_be_written_is_refused_before_the_machine_is_leased(duel, name):
    (duel.directory / name).write_text("a file", encoding="utf-8")

    done = duel(".", "--report", "report")

    assert done.exit_code == 4
    assert f"ddp-perf: {name}" in done.stderr
    assert not duel.opened


def test_a_result_that_cannot_be_written_keeps_the_launches_for_the_same_command(duel, monkeypatch):
    def full(path, found):
        raise ResultsError(f"{path}: no space left")

    with monkeypatch.context() as once:
        once.setattr("ddp_perf.cli.duel.write_duel", full)
        assert duel(".").exit_code == 4

    assert "goes on after " in duel(".").stderr


def test_emulated_cases_alone_are_compared_over_the_network_that_is_given(duel):
    done = duel(".", "--emulate", "8,64", "--network", "intra=1GB/s")

    assert done.exit_code == 0
    cases = [case.cases.b for case in duel.result().cases]
    assert [case.id for case in cases] == [
        "mlp-ddp-fp32-ws8-emulated-b64",
        "mlp-ddp-fp32-ws64-emulated-b64",
    ]
    assert "2 emulated cases: one rank runs, and its collectives take the time of" in " ".join(
        done.stdout.split()
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--network", "intra=1GB/s"], "--network: it is that of emulated ranks; add --emulate"),
        (["--emulate", "0"], "--emulate 0: it is not a list of ranks"),
        (["--emulate", "8"], "emulated: the links between the ranks are missing; add network:"),
        (["--emulate", "8", "--network", "intra=1"], "--network intra=1: intra=1 is no number of"),
    ],
)
def test_what_cannot_be_emulated_is_refused_before_anything_is_launched(duel, arguments, said):
    done = duel(".", *arguments)

    assert done.exit_code == 4
    assert said in " ".join(done.stderr.split())
    assert duel.opened == 0
