"""A suite of a script: its cases, and the overrides of the command line."""

from __future__ import annotations

import msgspec
import pytest

from ddp_perf.config.loading import Overrides, load_cases
from ddp_perf.core.metric import gated_metrics
from ddp_perf.errors import ConfigError
from tests.builders import SUITE


@pytest.fixture
def cases(script_suite):
    """``cases(Overrides(), batch_sizes=[8])``: the cases of a suite of a script."""

    def load(overrides=None, **changes):
        return load_cases([script_suite(**changes)], overrides or Overrides())

    return load


def test_each_size_is_a_case_with_its_arguments(cases):
    small, small_2, large, large_2 = cases(batch_sizes=[8, 16])

    assert [case.id for case in (small, small_2, large, large_2)] == [
        *("train-ws1-b8", "train-ws2-b8", "train-ws1-b16", "train-ws2-b16")
    ]
    assert large_2.script.args == ("--batch-size", "16", "--epochs", "1")
    assert (small.samples_per_step, large_2.samples_per_step) == (8, 32)
    assert large_2.single == large.id
    assert large.single is None


def test_variables_have_the_sizes_of_their_case(cases):
    env = {"DEVICES": "{world_size}", "OPTIONS": '{"batch": {batch_size}}', "PLAIN": "1"}

    case = cases(env=env, args=[], batch_sizes=[8, 16])[3]

    assert case.env == {"DEVICES": "2", "OPTIONS": '{"batch": 16}', "PLAIN": "1"}


def test_the_script_decides_what_a_workload_would_have_options_for(cases):
    case = cases()[0]

    assert (case.workload, case.strategy, case.precision, case.training.ddp) == (
        *("train.py", "script", None, None),
    )
    assert case.trains


def test_losses_are_not_gated(cases):
    metrics = gated_metrics(cases(tolerances={"tail": None})[1])

    assert "step_time" in metrics
    assert not {"loss", "tail"} & set(metrics)


@pytest.mark.parametrize(
    ("formula", "samples"),
    [(512, [512, 512]), ("512", [512, 512]), ("4 * {world_size} * {batch_size}", [256, 512])],
)
def test_the_samples_of_a_step_are_a_number_or_a_formula(cases, formula, samples):
    assert [case.samples_per_step for case in cases(samples_per_step=formula)] == samples


@pytest.mark.parametrize(
    ("script", "name"),
    [
        ("train.py", "train"),
        ("./train.py", "train"),
        ("examples/ddp/train.py", "train"),
        ("my train (v2).py", "my_train_v2_"),
        ("träin=1.py", "tr_in_1"),
        ("package.train", "package.train"),
    ],
)
def test_an_id_begins_with_the_name_of_the_script_as_files_and_options_have_it(
    cases, python_file, script, name
):
    python_file(f"{script.replace('.', '/')}.py" if "package" in script else script)

    assert cases(script=script)[0].id == f"{name}-ws1-b64"


@pytest.mark.parametrize("script", ["./train.py", "models/../train.py", ".//train.py"])
def test_two_ways_to_write_a_path_are_one_script(cases, python_file, script):
    python_file("models/other.py")

    written, plain = cases(script=script)[1], cases()[1]

    assert written.work() == plain.work()
    assert written.workload == plain.workload


def test_a_script_may_be_outside_the_project_or_absolute(cases, tmp_path, monkeypatch):
    (tmp_path / "inner").mkdir()
    monkeypatch.chdir(tmp_path / "inner")
    path = tmp_path / "train.py"

    assert cases(script="../train.py")[0].workload == "../train.py"
    assert cases(script=str(path))[0].id == "train-ws1-b64"


def test_what_changes_the_work_is_part_of_it(cases, python_file):
    python_file("engine.py", "def step(): ...")
    plain = cases()[1].work()

    for change in (
        {"args": ["--batch-size", "{batch_size}", "--epochs", "2"]},
        {"samples_per_step": 7},
        {"steps_by": "engine:step"},
        {"env": {"A": "1"}},
        {"args": ["--batch-size", "{batch_size}", "--epochs", "{{world_size}}"]},
        {"batch_sizes": [32]},
    ):
        assert cases(**change)[1].work() != plain


def test_a_number_of_ranks_that_is_stated_is_other_work_than_the_one_of_each_case(cases):
    for told, stated in (
        ({"args": ["{world_size}"]}, {"args": ["2"]}),
        ({"env": {"A": "{world_size}"}}, {"env": {"A": "2"}}),
    ):
        assert cases(**told)[1].work() != cases(**stated)[1].work()


def test_a_batch_size_that_is_stated_is_the_same_work_as_that_of_the_case(cases):
    told, stated = (cases(args=["--b", size])[1] for size in ("{batch_size}", "64"))

    assert told.work() == stated.work()


def test_a_variable_that_only_logs_is_no_work(cases):
    env = {"NCCL_DEBUG_FILE": "log-{world_size}"}

    assert cases(env=env)[1].work() == cases()[1].work()


def test_two_scripts_of_one_name_need_a_variant(script_suite, python_file):
    python_file("other/train.py")
    first = script_suite("a.yaml", suite="a")
    second = script_suite("b.yaml", suite="b", script="other/train.py")

    with pytest.raises(
        ConfigError, match=r"'train-ws1-b64' is also in .*a\.yaml; give one .*variant"
    ):
        load_cases([first, second], Overrides())

    third = script_suite("c.yaml", suite="c", script="other/train.py", variant="other")
    assert load_cases([first, third], Overrides())[3].id == "train-ws2-b64-other"


# ---- the command line ----


def test_overridden_sizes_replace_those_of_the_file(cases):
    (case,) = cases(Overrides(world_sizes=(4,), batch_sizes=(32,), steps=30))

    assert case.id == "train-ws4-b32"
    assert case.script.args[1] == "32"
    assert case.samples_per_step == 128
    assert case.schedule.steps == 30


def test_nodes_are_part_of_the_id(cases):
    one, two = cases(Overrides(world_sizes=(2, 8), ranks_per_node=4))

    assert (one.id, two.id) == ("train-ws2-b64", "train-ws8-2x4-b64")


def test_swept_variables_are_compared_with_the_first_value(cases):
    env = (("THREADS", "1"), ("THREADS", "2"))

    first, second = cases(Overrides(world_sizes=(2,), env=env))

    assert (first.id, second.id) == ("train-ws2-b64-THREADS=1", "train-ws2-b64-THREADS=2")
    assert (second.base, second.technique) == (first.id, "THREADS=2")
    assert second.env["THREADS"] == "2"
    assert first.base is None


def test_a_batch_size_is_not_given_to_a_script_without_it(script_suite, suite_file):
    fixed = script_suite("fixed.yaml", args=["--epochs", "1"])
    taking = script_suite("taking.yaml", suite="other", variant="b")

    cases = load_cases([fixed, taking], Overrides(world_sizes=(1,), batch_sizes=(8,)))

    assert [case.id for case in cases] == ["train-ws1-b64", "train-ws1-b8-b"]


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (Overrides(steps=2), "--ddp-steps counts the warm-ups too"),
        (
            Overrides(world_sizes=(6,), ranks_per_node=4),
            "changed by the command line: world_sizes: 6 ranks cannot share nodes of 4",
        ),
        (Overrides(world_sizes=(128,)), "'64 // ({world_size} // 64) - 63' is -31 with world_size"),
    ],
)
def test_overrides_that_do_not_apply_are_refused(cases, overrides, said):
    with pytest.raises(ConfigError) as caught:
        cases(overrides, samples_per_step="64 // ({world_size} // 64) - 63", world_sizes=[64])

    assert said in str(caught.value)


def test_a_batch_size_for_no_argument_is_refused(cases):
    with pytest.raises(ConfigError, match=r"--ddp-batch-sizes: no script takes \{batch_size\}"):
        cases(Overrides(batch_sizes=(8,)), args=["--epochs", "1"])


def test_data_of_files_are_for_workloads(cases):
    assert cases(Overrides(files=True)) == cases()


def test_scripts_and_workloads_are_measured_together(script_suite, suite_file):
    paths = [script_suite(), suite_file("workload.yaml", suite="workload")]

    cases = load_cases(paths, Overrides(world_sizes=(2,)))

    assert [case.id for case in cases] == ["train-ws2-b64", "mlp-ddp-fp32-ws2-b64"]


def test_every_common_field_reaches_the_cases(cases):
    given = {
        **{name: SUITE[name] for name in ("steps", "warmup", "launches")},
        "start_deadline_s": 7,
        "step_deadline_s": 8,
    }

    case = cases(**given, launcher="ssh", scratch=False, variant="v", env={"A": "1"})[0]

    assert msgspec.structs.asdict(case.schedule) == given
    assert (case.launcher, case.script.scratch, case.env) == ("ssh", False, {"A": "1"})
    assert case.id == "train-ws1-b64-v"


def test_a_script_works_in_a_private_tree_unless_the_suite_states_otherwise(cases):
    assert {case.script.scratch for case in cases()} == {True}
