"""The suite file of a script: its samples, its name, and its text."""

from __future__ import annotations

import pytest

from ddp_perf.config.cases import script_run
from ddp_perf.config.loading import checked_suite, load_suite
from ddp_perf.config.script_file import (
    find_samples,
    free_name,
    suite_of_script,
    suite_text,
)
from ddp_perf.errors import ConfigError

FIELDS = {
    "suite": "train",
    "tier": "cpu",
    "script": "train.py",
    "world_sizes": [1, 2],
    "batch_sizes": [64],
}


@pytest.fixture
def directory(tmp_path):
    (tmp_path / "train.py").touch()
    return tmp_path


@pytest.mark.parametrize(
    ("args", "replaced"),
    [
        (["--batch-size", "64"], ["--batch-size", "{batch_size}"]),
        (["--batch_size=64", "x"], ["--batch_size={batch_size}", "x"]),
        (["50", "-b", "64"], ["50", "-b", "{batch_size}"]),
        (
            ["--per_device_train_batch_size", "64", "--lr", "1e-4"],
            ["--per_device_train_batch_size", "{batch_size}", "--lr", "1e-4"],
        ),
        (
            ["--training.local_batch_size", "64"],
            ["--training.local_batch_size", "{batch_size}"],
        ),
        (
            ["--eval_batch_size", "8", "--batch_size", "64"],
            ["--eval_batch_size", "8", "--batch_size", "{batch_size}"],
        ),
    ],
)
def test_the_batch_size_of_a_rank_is_replaced_in_its_option(args, replaced):
    samples = find_samples(args, None)

    assert [*samples.args] == replaced
    assert (samples.batch_size, samples.per_step) == (64, "{world_size} * {batch_size}")
    assert samples.source in args[0] or samples.source in args


@pytest.mark.parametrize(
    "args",
    [[], ["--batch-size"], ["--batch-size", "auto"], ["--batch-size=0"], ["batch-size", "8"]],
)
def test_without_a_batch_size_each_step_of_a_rank_is_one_sample(args):
    samples = find_samples(args, None)

    assert [*samples.args] == args
    assert (samples.batch_size, samples.per_step, samples.source) == (1, "{world_size}", "")


@pytest.mark.parametrize(
    ("formula", "per_step"),
    [("256", 256), ("{world_size} * {batch_size} * 4", "{world_size} * {batch_size} * 4")],
)
def test_a_given_formula_counts(formula, per_step):
    samples = find_samples(["--batch-size", "8"], formula)

    assert (samples.batch_size, samples.per_step) == (8, per_step)


@pytest.mark.parametrize(
    ("args", "formula", "message"),
    [
        (["--bs", "{batch_size}"], None, "its value is not known yet; write a number"),
        ([], "{world_size} * {batch_size}", "no argument of the script states its batch size"),
    ],
)
def test_a_batch_size_without_a_value_is_refused(args, formula, message):
    with pytest.raises(ConfigError, match=message):
        find_samples(args, formula)


@pytest.mark.parametrize(
    ("script", "taken", "name"),
    [
        ("train.py", [], "train"),
        ("my tools/pre train.py", [], "pre_train"),
        ("package.train", [], "train"),
        ("train.py", ["train", "train_2"], "train_3"),
    ],
)
def test_a_suite_gets_a_name_that_no_other_one_has(tmp_path, script, taken, name):
    for other in taken:
        (tmp_path / f"{other}.yaml").touch()

    assert free_name(script, tmp_path) == name


def test_a_script_gets_braces_as_they_were_given(directory):
    given = ["--name", "run-{epoch}", '{"a": 1}', "{world_size}", "{}", "{{x}}"]
    args = find_samples(given, None).args

    suite = checked_suite({**FIELDS, "args": [*args]}, [str(directory)])

    run = script_run(suite, world_size=2, batch_size=64)
    assert run.args == ("--name", "run-{epoch}", '{"a": 1}', "2", "{}", "{x}")


def test_the_suite_of_a_script_is_found_beside_broken_and_other_ones(tmp_path):
    (tmp_path / "a.yaml").write_text("{")
    (tmp_path / "b.yaml").write_text("workload: mlp")
    (tmp_path / "c.yaml").write_text("script: ./train.py")

    assert suite_of_script("train.py", tmp_path) == tmp_path / "c.yaml"
    assert suite_of_script("other.py", tmp_path) is None
    assert suite_of_script("train.py", tmp_path / "nothing") is None


def test_the_text_has_what_a_reader_checks_and_what_differs_from_a_default(directory):
    suite = checked_suite({**FIELDS, "env": {"A": "1"}, "steps": 20}, [str(directory)])

    assert suite_text(suite).splitlines() == [
        "suite: train",
        "tier: cpu",
        "script: train.py",
        "args: []",
        "world_sizes: [1, 2]",
        "batch_sizes: [64]",
        "samples_per_step: '{world_size} * {batch_size}'",
        "steps: 20",
        "env: {A: '1'}",
    ]


@pytest.mark.parametrize(
    "args",
    [
        ["--lr", "1e-4", "--flag=no", "no", "null", "0x10", "1:30", "", " ", "a: b", "#x", "é"],
        ["--json", '{"a": [1, 2], "b": "c d"}', "--text", "it's\n\ttwo lines", "\\", "--"],
        [f"--long-option-{'x' * 200}", "y " * 200],
    ],
)
def test_the_written_file_is_read_as_the_same_suite(directory, args):
    suite = checked_suite({**FIELDS, "args": args, "scratch": False}, [str(directory)])
    (directory / "suite.yaml").write_text(suite_text(suite), encoding="utf-8")

    assert load_suite(directory / "suite.yaml", [str(directory)]) == suite


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"script": "nothing.py"}, "^script: there is no file nothing.py in "),
        ({"tier": "tpu"}, "^tier: 'tpu' is not one of "),
        ({"steps": 5}, "^warmup: 5 warm-ups leave nothing to measure of 5 steps"),
        ({"world_sizes": [2, 2]}, "^world_sizes: 2 is listed twice"),
    ],
)
def test_fields_are_checked_as_those_of_a_file(directory, changes, message):
    with pytest.raises(ConfigError, match=message):
        checked_suite({**FIELDS, **changes}, [str(directory)])
