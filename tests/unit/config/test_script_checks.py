"""An error in a suite of a script is reported in one line, before anything is launched."""

from __future__ import annotations

import sys

import pytest

from ddp_perf.config.loading import load_suite
from tests.unit.config.refusals import refusal

# ---- the fields ----


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"script": "train.sh/"}, "script: write a file, as in train.py, or a module, as in"),
        ({"script": "./train"}, "script: write a file, as in train.py, or a module, as in"),
        ({"script": ""}, "script: write a file, as in train.py, or a module, as in"),
        ({"script": 3}, "script: expected a text, got a whole number"),
        ({"args": "--epochs 1"}, "args: expected a list, got a text"),
        ({"args": ["--lr", 0.001]}, "args[1]: 0.001 is not a text; quote it: '0.001'"),
        ({"args": [1]}, "args[0]: 1 is not a text; quote it: '1'"),
        ({"args": ["--amp", True]}, "args[1]: true is not a text; quote it: 'true'"),
        ({"args": [None]}, "args[0]: null is not a text; quote it: 'null'"),
        (
            {"args": [{"batch_size": None}]},
            "args[0]: {batch_size} is not a text; quote it: '{batch_size}'",
        ),
        ({"args": [{"lr": 0.1}]}, 'args[0]: {"lr": 0.1} is not a text; quote it: \'{"lr": 0.1}\''),
        (
            {"args": ["{batchsize}"]},
            "args[0]: {batchsize} is unknown; did you mean 'batch_size'?; write {{batchsize}} for",
        ),
        ({"batch_sizes": [8, 8]}, "batch_sizes: 8 is listed twice, so two cases have one id"),
        ({"batch_sizes": {"global": [8]}}, "batch_sizes: expected a list, got a table of fields"),
        (
            {"batch_sizes": [8, 16], "args": []},
            "batch_sizes: neither args nor env has {batch_size}, so all cases would be the same",
        ),
        ({"batch_sizes": ...}, "batch_sizes: required, but missing"),
        (
            {"samples_per_step": "2 ** 8"},
            "samples_per_step: '2 ** 8' is no formula of whole numbers",
        ),
        ({"samples_per_step": "1 + " * 60 + "1"}, "samples_per_step: expected a text of length <="),
        ({"samples_per_step": 0}, "samples_per_step: expected a whole number >= 1"),
        ({"samples_per_step": 10**13}, "samples_per_step: '10000000000000' is 10000000000000 with"),
        ({"samples_per_step": 6.5}, "samples_per_step: expected a whole number or a text, got a"),
        ({"samples_per_step": "{world_size} - 1"}, "is 0 with world_size 1 and batch_size 64"),
        (
            {"env": {"DEVICES": "{world_sizes}"}},
            "env.DEVICES: {world_sizes} is unknown; did you mean 'world_size'?; write",
        ),
        ({"steps_by": "step"}, "steps_by: write optimizer, or module:function"),
        (
            {"steps_by": "optimiser"},
            "steps_by: write optimizer, or module:function; did you mean 'optimizer'?",
        ),
        (
            {"args": "--batch-size 64"},
            'args: expected a list, got a text; write it as in [--batch-size, "{batch_size}"]',
        ),
        ({"steps_by": "engine:"}, "steps_by: write optimizer, or module:function"),
        ({"scratch": "yes"}, "scratch: expected true or false, got a text"),
        ({"tolerances": {"energy": 0.1}}, "tolerances.energy: only GPUs count their energy"),
        (
            {"tolerances": {"loss": None}},
            "tolerances.loss: the losses of a script are not gated, as its seeds are its own",
        ),
        (
            {"tolerances": {"steptime": 1}},
            "tolerances.steptime: unknown field; did you mean 'step_t",
        ),
        ({"arguments": []}, "arguments: unknown field"),
        ({"arg": []}, "arg: unknown field; did you mean 'args'?"),
        ({"warmup": 12}, "warmup: 12 warm-ups leave nothing to measure of 12 steps"),
        ({"workload": "mlp"}, "script: the suite has workload, too; remove one of the two"),
        ({"collectives": []}, "script: the suite has collectives, too; remove one of the two"),
    ],
)
def test_an_impossible_value_is_refused_with_its_field(script_suite, change, said):
    assert said in refusal(script_suite(**change))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("model", {"depth": 2}),
        ("data", {"num_workers": 2}),
        ("strategy", "fsdp"),
        ("ddp", {"static_graph": True}),
        ("fsdp", {}),
        ("comm_hooks", []),
        ("precision", "bf16"),
        ("gradient_accumulation", 2),
        ("activation_checkpointing", True),
        ("compile", True),
        ("cuda_graphs", True),
        ("cudnn_benchmark", True),
        ("denominator", "ddp-1"),
    ],
)
def test_an_option_of_workloads_is_refused_since_the_script_decides(script_suite, field, value):
    said = refusal(script_suite(**{field: value}))

    assert said == f"{field}: the script decides it; remove it, or set it by args"


@pytest.mark.parametrize(
    ("field", "said"),
    [
        ("techniques", "write a second suite file with other args and a variant"),
        ("price_per_gpu_hour", "only the suite of a workload has costs; remove it"),
        ("epoch_samples", "only the suite of a workload has epochs; remove it"),
    ],
)
def test_any_other_field_of_workloads_is_refused_with_a_remedy(script_suite, field, said):
    assert said in refusal(script_suite(**{field: None}))


# ---- the file ----


def test_a_script_that_is_missing_is_refused_with_the_nearest_name(script_suite, tmp_path):
    said = refusal(script_suite(script="trian.py"))

    assert said == f"script: there is no file trian.py in {tmp_path}; did you mean 'train.py'?"


def test_a_script_like_no_other_is_refused_with_where_it_was_sought(script_suite, tmp_path):
    said = refusal(script_suite(script="src/zzz.py"), import_paths=["/elsewhere"])

    assert said == "script: there is no file src/zzz.py in /elsewhere; give its path from there on"


def test_a_script_is_found_on_the_import_path(script_suite, tmp_path):
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "only_there.py").write_text("", encoding="utf-8")

    load_suite(script_suite(script="only_there.py"), import_paths=[str(tmp_path / "other")])


def test_with_an_import_path_this_directory_is_not_searched(script_suite, tmp_path):
    assert "no file train.py in /elsewhere" in refusal(script_suite(), ["/elsewhere"])
    assert "no module train in /elsewhere" in refusal(script_suite(script="train"), ["/elsewhere"])


def test_a_folder_is_refused(script_suite, tmp_path):
    (tmp_path / "folder.py").mkdir()

    said = refusal(script_suite(script="folder.py"))

    assert said == "script: folder.py is a folder; name a file of it"


def test_a_file_that_is_not_python_is_refused(script_suite, tmp_path):
    (tmp_path / "train.sh").write_text("python train.py", encoding="utf-8")

    said = refusal(script_suite(script="train.sh"))

    assert said == "script: train.sh is not a file of Python: its name must end with .py"


def test_a_script_with_an_error_is_refused_with_its_line(script_suite, python_file):
    source = python_file("wrong.py", "import torch\nfor step in range(3)\n    pass\n")

    assert refusal(script_suite(script="wrong.py")) == f"script: {source}:2: expected ':'"


def test_a_script_of_another_encoding_is_refused_unless_it_states_it(script_suite, tmp_path):
    (tmp_path / "latin.py").write_bytes(b"# Gr\xf6\xdfe\n")
    (tmp_path / "stated.py").write_bytes(b"# coding: latin-1\n# Gr\xf6\xdfe\n")

    assert " is not Python source: " in refusal(script_suite(script="latin.py"))
    load_suite(script_suite(script="stated.py"))


@pytest.mark.filterwarnings("error")
def test_a_warning_of_python_about_a_script_is_left_to_the_ranks(script_suite, python_file):
    python_file("escapes.py", r'PATTERN = "\d"')

    load_suite(script_suite(script="escapes.py"))


# ---- a module ----


def test_a_module_is_found_and_parsed_without_an_import(script_suite, python_file, tmp_path):
    python_file("package/__init__.py", "raise SystemExit")
    python_file("package/train.py", "raise SystemExit")
    python_file("package/wrong.py", "1 +")
    python_file("package/__main__.py")
    paths = [str(tmp_path)]

    load_suite(script_suite(script="package.train"), paths)
    load_suite(script_suite(script="package"), paths)
    load_suite(script_suite(script="train"), paths)
    assert refusal(script_suite(script="package.wrong"), paths).startswith("script: ")
    assert "package" not in sys.modules


@pytest.mark.parametrize(
    ("module", "said"),
    [
        ("package.trian", "there is no module {}; did you mean 'package.train'?"),
        ("trian", "there is no module {}; did you mean 'train'?"),
        (
            "zzz.zzz",
            "there is no module {}; name a module that can be imported, or give a file, as in"
            " train.py",
        ),
        ("package", "the package package has no __main__.py; name one of its modules"),
        ("folder", "the package folder has no __main__.py; name one of its modules"),
    ],
)
def test_a_module_that_cannot_be_run_is_refused(script_suite, python_file, tmp_path, module, said):
    python_file("package/__init__.py")
    python_file("package/train.py")
    python_file("folder/other.py")

    assert refusal(script_suite(script=module), [str(tmp_path)]) == (
        f"script: {said.format(f'{module} in {tmp_path}')}"
    )


def test_a_compiled_module_is_accepted(script_suite):
    load_suite(script_suite(script="_json"))


# ---- what ends a step ----


@pytest.mark.parametrize("function", ["engine:train_step", "engine:Engine.step", "library:any"])
def test_a_function_of_a_module_may_end_a_step(script_suite, python_file, tmp_path, function):
    python_file("engine.py", "class Engine:\n    def step(self): ...\ndef train_step(): ...\n")
    python_file("library.py", "from engine import *\n")

    load_suite(script_suite(steps_by=function), [str(tmp_path)])


def test_a_function_of_a_module_beside_the_script_may_end_a_step(script_suite, python_file):
    python_file("examples/train.py", "import engine")
    python_file("examples/engine.py", "def train_step(): ...\n")

    load_suite(script_suite(script="examples/train.py", steps_by="engine:train_step"))


@pytest.mark.parametrize(
    ("function", "said"),
    [
        ("engine:train_stpe", "'engine' defines no 'train_stpe'; did you mean 'train_step'?"),
        ("engin:train_step", "there is no module engin in {}; did you mean 'engine'?"),
        ("zzz:step", "there is no module zzz in {}; name a module that the script imports"),
        (
            "train:step",
            "train:step is of the script itself, which is not there before it runs; name a function"
            " of a module that it imports",
        ),
        (
            "__main__:step",
            "__main__:step is of the script itself, which is not there before it runs; name a"
            " function of a module that it imports",
        ),
    ],
)
def test_a_function_that_cannot_end_a_step_is_refused(
    script_suite, python_file, tmp_path, function, said
):
    python_file("engine.py", "def train_step(): ...\n")

    assert refusal(script_suite(steps_by=function), [str(tmp_path)]) == (
        f"steps_by: {said.format(tmp_path)}"
    )
