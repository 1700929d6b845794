"""``ddp-perf try``: its options, what it prints and writes, and its exit codes."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from ddp_perf.cli.app import app
from ddp_perf.cli.measuring import TerminatedError
from ddp_perf.config.loading import Overrides, load_cases
from ddp_perf.core.launch import ScriptFacts
from ddp_perf.session.result import read_results
from ddp_perf.system.gpu.gpus import find_gpus
from tests.builders import (
    FakeLauncher,
    make_capacity,
    make_failure,
    make_gpu_machine,
    make_launch,
    make_probe,
)
from tests.recordings import RecordedReader

ONE_PASS = ScriptFacts(steps_at="train.py:57", micro_steps=(1, 1), optimizers=1, skipped=0)


class Command:
    """The command in a directory with a script, on a machine of two cores that is simulated."""

    def __init__(self, directory, monkeypatch):
        self.directory, self.launcher = directory, FakeLauncher(self._answer)
        self.capacity = make_capacity()
        self.facts, self.requests = ONE_PASS, []
        (directory / "train.py").touch()
        monkeypatch.chdir(directory)
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        command = "ddp_perf.cli.try_script"
        monkeypatch.setattr(f"{command}.find_capacity", lambda: self.capacity)
        monkeypatch.setattr(f"{command}.ServerLauncher", lambda: self.launcher)
        lease = "ddp_perf.session.measure.machine.machine_lease"
        monkeypatch.setattr(lease, lambda **_: contextlib.nullcontext())

    def __call__(self, *arguments):
        return CliRunner().invoke(app, ["try", *map(str, arguments)], env={"COLUMNS": "100"})

    @property
    def cases(self):
        return {request.case.id: request.case for request in self.requests}

    def _answer(self, request):
        self.requests.append(request)
        probe = make_probe(steps=request.probe_steps)
        return make_launch(request.case, request.round, script=self.facts, probe=probe)


@pytest.fixture
def command(tmp_path, monkeypatch):
    return Command(tmp_path, monkeypatch)


def test_one_command_prints_table_terms_advice_the_file_and_the_next_command(command):
    done = command("train.py", "--world-sizes", "1,2", "--", "--batch-size", "64")

    assert done.exit_code == 0
    shown = done.stdout
    parts = ["effi-", "ms a step", "- a step computes for", "samples: 64", "suite: train", "next: "]
    assert sorted(parts, key=shown.index) == parts
    assert "    args: [--batch-size, '{batch_size}']\n" in shown
    assert shown.splitlines()[-1] == (
        "next: ddp-perf try train.py --world-sizes 1,2 --write bench_configs/train.yaml"
        " -- --batch-size 64"
    )
    assert "ddp-perf: 6 launches of train.py, tier cpu\n" in done.stderr
    assert "ddp-perf: launch 6 of 6: train-ws2-b64: 10.00 ms a step\n" in done.stderr
    assert [case.script.args for case in command.cases.values()] == [("--batch-size", "64")] * 2
    assert sorted(command.directory.iterdir()) == [command.directory / "train.py"]


def test_what_follows_the_dashes_is_the_scripts_even_if_it_looks_like_ours(command):
    command("train.py", "--launches", 1, "--", "--launches", "7", "--help", "--", "x")

    (case, *_) = command.cases.values()
    assert case.script.args == ("--launches", "7", "--help", "--", "x")
    assert case.schedule.launches == 1


@pytest.mark.parametrize("arguments", [["train.py", "--shuffle", "3"], ["--shuffle=3", "train.py"]])
def test_an_unknown_option_is_refused_with_its_place(command, arguments):
    done = command(*arguments)

    assert (done.exit_code, command.requests) == (4, [])
    assert done.stderr == (
        "ddp-perf: No such option: --shuffle; what is for the script follows --, as in ddp-perf try"
        " train.py -- --shuffle\n"
    )


def test_options_reach_the_ranks_and_the_file(command):
    Path("engine.py").write_text("def step(): ...", "utf-8")

    command(
        *(
            "train.py",
            "--steps",
            20,
            "--launches",
            1,
            "--env",
            "A=b=c",
            "--env",
            "D=",
            "--no-scratch",
        ),
        *("--steps-by", "engine:step", "--start-deadline", "10m"),
        *("--samples-per-step", "{world_size} * 3", "--write", "suites/x.yaml"),
    )

    launched = command.cases["train-ws2-b1"]
    assert (launched.env, launched.schedule.steps) == ({"A": "b=c", "D": ""}, 20)
    assert (launched.script.scratch, launched.script.samples) == (False, 6)
    (_, written) = load_cases([Path("suites/x.yaml")], Overrides())
    schedule = msgspec.structs.replace(launched.schedule, launches=5)
    assert written == msgspec.structs.replace(launched, suite="x", schedule=schedule)


def test_the_default_is_one_rank_and_two_or_all_gpus(command):
    command("train.py")
    assert [case.world_size for case in command.cases.values()] == [1, 2]

    command.requests.clear()
    command.capacity = make_capacity(make_gpu_machine(*["NVIDIA H100 80GB HBM3"] * 4), cores=8)
    done = command("train.py", "--write", "train.yaml")
    assert [(case.tier, case.world_size) for case in command.cases.values()] == [
        ("gpu", 1),
        ("gpu", 4),
    ]
    assert " -m gpu --ddp-config=train.yaml --save-baseline\n" in done.stdout


def test_gpus_that_torch_cannot_use_are_named_and_not_used(command, monkeypatch):
    command.capacity = make_capacity(make_gpu_machine("NVIDIA H100 80GB HBM3"))
    runtime = msgspec.structs.replace(command.launcher.runtime(), cuda=None)
    monkeypatch.setattr(command.launcher, "runtime", lambda case=None: runtime)

    done = command("train.py")

    assert {case.tier for case in command.cases.values()} == {"cpu"}
    assert "tier cpu, since torch cannot use the GPUs here: torch 2.13.0 is" in done.stderr


@pytest.mark.parametrize(("mask", "tiers"), [("", {"cpu"}), ("1", {"gpu"})])
def test_hidden_gpus_are_not_used_and_the_next_command_hides_them_again(
    command, monkeypatch, mask, tiers
):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", mask)
    machine = find_gpus(reader=RecordedReader.of("v100-pcie-pair"))
    command.capacity = make_capacity(machine, cores=2)

    done = command("train.py")

    assert {case.tier for case in command.cases.values()} == tiers
    quoted = mask or "''"
    assert done.stdout.splitlines()[-1] == (
        f"next: CUDA_VISIBLE_DEVICES={quoted} ddp-perf try train.py"
        " --write bench_configs/train.yaml"
    )


def test_more_ranks_than_cores_are_left_out_or_refused(command):
    done = command("train.py", "--world-sizes", "1,4")
    assert done.exit_code == 0
    assert "train-ws4-b1 is left out: it needs 4 cores, 1 per rank, found 2" in done.stderr
    assert {case.world_size for case in command.cases.values()} == {1}

    command.requests.clear()
    done = command("train.py", "--world-sizes", "4")
    assert (done.exit_code, command.requests) == (4, [])
    assert done.stderr == "ddp-perf: train-ws4-b1 needs 4 cores, 1 per rank, found 2\n"

    command.capacity = make_capacity(cores=1)
    done = command("train.py")
    assert [case.world_size for case in command.cases.values()] == [1]
    assert "1 rank: this process may use one core" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nothing.py"], "script: there is no file nothing.py in "),
        (["train.py", "--world-sizes", "1,x"], "--world-sizes 1,x: it is no list of numbers"),
        (["train.py", "--world-sizes", "0"], "world_sizes[0]: expected a whole number >= 1"),
        (["train.py", "--env", "A"], "--env A: it is not of the form NAME=VALUE"),
        (["train.py", "--start-deadline", "5"], "--start-deadline: '5' is not a duration"),
        (["train.py", "--steps", "4"], "warmup: 5 warm-ups leave nothing to measure of 4 steps"),
        (["train.py", "--samples-per-step", "4 apples"], "samples_per_step: "),
        (["train.py", "--write", "train.py"], "--write train.py: it exists already"),
        (["train.py", "--write", "train.py/x.yaml"], "--write train.py/x.yaml: it cannot be wr"),
    ],
)
def test_a_mistake_is_one_line_before_any_launch(command, arguments, message):
    done = command(*arguments)

    assert (done.exit_code, command.requests) == (4, [])
    assert done.stderr.startswith(f"ddp-perf: {message}")
    assert done.stderr.count("\n") == 1


def test_a_failed_launch_is_told_in_the_users_terms(command):
    frames = 'File "train.py", line 3\nValueError: no data'
    command.launcher = FakeLauncher(
        lambda request: make_failure(
            request.case, detail="ValueError: no data", user_frames=frames, output="epoch 0"
        )
    )

    done = command("train.py", "--write", "x.yaml")

    assert (done.exit_code, done.stdout) == (75, "")
    (told,) = done.stderr.split("ddp-perf: ")[3:]
    assert told == (
        f"train-ws1-b1: launch 1: rank 1: ValueError: no data\n{frames}\n"
        "(These are the frames of your code.)\nlast output:\nepoch 0\n"
    )
    assert not Path("x.yaml").exists()


@pytest.mark.parametrize(
    ("detail", "shown"),
    [
        (
            "ended after 20 steps, but needs 65: 60 of `steps:`, and 5 before them; let it train"
            " longer, or lower `steps:` to 15",
            "ended after 20 steps, but needs 65: 60 of --steps, and 5 before them; let it train"
            " longer, or lower --steps to 15",
        ),
        ("has no group; keep world_sizes: [1]", "has no group; keep --world-sizes 1"),
        ("name it: steps_by: module:function", "name it: --steps-by module:function"),
        ("set `tier:` or its own option", "set CUDA_VISIBLE_DEVICES= or its own option"),
    ],
)
def test_a_failure_names_options_since_there_is_no_suite_file(command, detail, shown):
    command.launcher = FakeLauncher(lambda request: make_failure(request.case, detail=detail))

    done = command("train.py")

    assert done.stderr.splitlines()[-1].endswith(f" {shown}")


def test_a_failure_of_the_script_itself_is_not_changed(command):
    failure = {"detail": "ValueError: steps: 3", "user_frames": "frames"}
    command.launcher = FakeLauncher(lambda request: make_failure(request.case, **failure))

    assert "ValueError: steps: 3\n" in command("train.py").stderr


def test_the_files_that_the_script_wrote_are_listed_once(command):
    """Each launch of each case wrote the same ones."""
    files = {"own_files": ("runs/last/model.pt",), "changed_files": ("/models/best.pt",)}
    command.facts = msgspec.structs.replace(ONE_PASS, **files)

    shown = " ".join(command("train.py").stdout.split())

    assert shown.count("the script wrote 1 file, removed after the launch: runs/last/mod") == 1
    assert shown.count("the script CHANGED 1 file OUTSIDE of its private directory, as each") == 1
    assert "again: /models/best.pt; switch that off by its args" in shown


def test_a_hang_names_the_option_for_a_slow_start(command):
    command.launcher = FakeLauncher(
        lambda request: make_failure(request.case, kind="hang", detail="hung", rank=0)
    )

    done = command("train.py", "--start-deadline", "90s")

    assert done.exit_code == 75
    assert done.stderr.splitlines()[-1] == (
        "The first step had 90 s, and each later one 60 s. If the script needs longer to start:"
        " --start-deadline 10m"
    )


def test_several_backward_passes_may_each_have_a_batch(command):
    command.facts = msgspec.structs.replace(ONE_PASS, micro_steps=(4, 4))

    shown = " ".join(command("train.py", "--", "-b", "8").stdout.split())

    assert (
        "a step has up to 4 backward passes; if each has a batch of its own: --samples-per-step"
        ' "{world_size} * {batch_size} * 4"'
    ) in shown
    formula = "{world_size} * {batch_size} * 4"
    stated = command("train.py", "--samples-per-step", formula, "--", "-b", "8").stdout
    assert f"samples of a step: {formula}\n" in stated
    assert "if each has" not in stated


def test_a_written_file_leads_to_pytest_and_a_second_one_is_refused(command):
    write = ("train.py", "--write", "bench_configs/train.yaml")

    done = command(*write)

    assert done.stdout.splitlines()[-1] == (
        'next: ddp-perf init && pytest tests/test_perf.py -m "perf and cpu"'
        " --ddp-config=bench_configs/train.yaml --save-baseline"
    )
    text = Path("bench_configs/train.yaml").read_text(encoding="utf-8")
    assert text.splitlines()[0] == "suite: train"
    assert command(*write).exit_code == 4
    assert Path("bench_configs/train.yaml").read_text(encoding="utf-8") == text


def test_a_suite_of_the_script_and_tests_that_are_there_are_used(command):
    Path("bench_configs").mkdir()
    Path("bench_configs/own suite.yaml").write_text("script: train.py\n", "utf-8")
    Path("tests/perf").mkdir(parents=True)
    Path("tests/perf/test_all.py").write_text(
        "def test_it(ddp_measured, assert_verdict): ...", "utf-8"
    )

    done = command("train.py")

    assert "ddp-perf: bench_configs/own suite.yaml measures train.py already\n" in done.stderr
    assert done.stdout.splitlines()[-1] == (
        "next: pytest -m \"perf and cpu\" '--ddp-config=bench_configs/own suite.yaml'"
        " --save-baseline"
    )


def test_json_is_a_results_file_and_nothing_else(command):
    done = command("train.py", "--json")

    assert done.exit_code == 0
    Path("r.json").write_text(done.stdout, encoding="utf-8")
    results = read_results(Path("r.json"))
    assert results.complete
    assert [len(one.launches) for one in results.suites[0].measurements.values()] == [3, 3]
    assert done.stderr.splitlines()[-1] == (
        "next: ddp-perf try train.py --write bench_configs/train.yaml"
    )
    command.launcher = FakeLauncher(lambda request: make_failure(request.case))
    failed = command("train.py", "--json")
    assert (failed.exit_code, json.loads(failed.stdout)["complete"]) == (75, False)


def test_a_script_elsewhere_is_measured_and_its_file_is_not_for_every_checkout(command):
    Path("inner dir").mkdir()
    Path("inner dir/train.py").touch()
    command("inner dir/../inner dir/train.py", "--write", "inner.yaml")
    assert "script: inner dir/train.py\n" in Path("inner.yaml").read_text(encoding="utf-8")

    done = command(command.directory / "train.py", "--write", "here.yaml")
    assert "script: train.py\n" in Path("here.yaml").read_text(encoding="utf-8")
    assert "outside" not in done.stderr

    outside = command.directory.parent / "outside.py"
    outside.touch()
    done = command(outside)
    assert done.exit_code == 0
    assert f"{outside} is outside of {command.directory}; a suite file for every " in done.stderr
    assert f"script: {outside.as_posix()}\n" in done.stdout


def test_the_words_of_the_command_that_writes_are_quoted(command):
    Path("my train.py").touch()

    done = command("my train.py", "--env", "A=b c", "--env", "D=e", "--no-scratch", "--", "", "$x")

    assert done.stdout.splitlines()[-1] == (
        "next: ddp-perf try 'my train.py' --env 'A=b c' --env D=e --no-scratch --write"
        " bench_configs/my_train.yaml -- '' '$x'"
    )


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [(KeyboardInterrupt, 130, "interrupted"), (TerminatedError, 143, "ended by SIGTERM")],
)
def test_an_early_end_has_the_exit_code_of_a_shell(command, error, code, line):
    def end(request):
        raise error

    command.launcher = FakeLauncher(end)

    done = command("train.py", "--write", "x.yaml")

    assert (done.exit_code, done.stdout) == (code, "")
    assert done.stderr.splitlines()[-1] == f"ddp-perf: {line}"
    assert not Path("x.yaml").exists()


def test_a_finished_measurement_is_shown_if_an_interrupt_comes_while_the_launcher_closes(command):
    def interrupted():
        command.launcher.close = lambda: None
        raise KeyboardInterrupt

    command.launcher.close = interrupted

    done = command("train.py", "--write", "x.yaml")

    assert done.exit_code == 130
    assert "ddp-perf: interrupted\n" in done.stderr
    assert "ms a step" in done.stdout
    assert Path("x.yaml").exists()
