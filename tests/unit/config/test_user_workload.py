"""A user's ``module:function`` is checked without an import, which would import torch."""

from __future__ import annotations

import importlib.util
import sys
from types import SimpleNamespace

import pytest

from ddp_perf.config.loading import load_suite
from tests.unit.config.refusals import refusal


@pytest.fixture
def module(tmp_path, monkeypatch):
    """``module(source)`` writes a module that a suite can name. Its import would raise."""
    monkeypatch.syspath_prepend(tmp_path)

    def write(source, name="my_workload"):
        path = tmp_path / f"{name}.py"
        path.write_text(f"{source}\nraise RuntimeError('imported')\n", encoding="utf-8")
        return path

    return write


@pytest.mark.parametrize(
    "source",
    [
        pytest.param("def build(context, **model): ...", id="function"),
        pytest.param("class build: ...", id="class"),
        pytest.param("build = lambda: None", id="assignment"),
        pytest.param("from somewhere import build", id="import"),
        pytest.param("from somewhere import make as build", id="import as"),
        pytest.param("from somewhere import *", id="star import"),
        pytest.param(
            "try:\n    def build(context, **model): ...\nexcept OSError: ...", id="in a try"
        ),
        pytest.param(
            "match 1:\n    case 1:\n        def build(context, **model): ...", id="in a case"
        ),
        pytest.param("if True: ...\nelse:\n    def build(context, **model): ...", id="in an else"),
    ],
)
def test_a_target_is_found_without_importing_its_module(suite_file, module, source):
    module(source)

    suite = load_suite(suite_file(workload="my_workload:build"))

    assert suite.workload == "my_workload:build"
    assert "my_workload" not in sys.modules


def test_arguments_of_a_user_workload_are_passed_on(suite_file, module):
    module("def build(context, **arguments): ...")

    suite = load_suite(suite_file(workload="my_workload:build", model={"heads": 4, "rate": 0.1}))

    assert suite.model == {"heads": 4, "rate": 0.1}


@pytest.mark.parametrize(
    ("source", "said"),
    [
        pytest.param("def biuld(): ...", "; did you mean 'biuld'?", id="misspelt"),
        pytest.param("def run():\n    def build(): ...", "defines no 'build'", id="not top level"),
        pytest.param("x = 1", "defines no 'build'", id="absent"),
    ],
)
def test_a_missing_function_is_refused(suite_file, module, source, said):
    module(source)

    message = refusal(suite_file(workload="my_workload:build"))

    assert message.startswith("workload: 'my_workload' defines no 'build'")
    assert said in message


def test_an_unknown_module_is_refused_with_its_expected_place(suite_file):
    message = refusal(suite_file(workload="nowhere_at_all:build"))

    assert message.startswith("workload: no module named 'nowhere_at_all'; it must")


def test_a_syntax_error_is_named_with_its_line(suite_file, module):
    source = module("def build(: ...")

    message = refusal(suite_file(workload="my_workload:build"))

    assert message.startswith(f"workload: {source}:1: ")


@pytest.mark.parametrize("target", ["a:b:c", ":build", "my workload:build", "my-workload:build"])
def test_an_invalid_target_is_refused(suite_file, target):
    assert refusal(suite_file(workload=target)).startswith("workload: ")


@pytest.mark.parametrize(
    ("source", "model", "said"),
    [
        pytest.param(
            "def build(context, *, depth): ...",
            {"dept": 3},
            "model.dept: my_workload:build takes no such argument; did you mean 'depth'?",
            id="misspelt argument",
        ),
        pytest.param(
            "def build(context, *, depth, width=1): ...",
            {"width": 3},
            "model.depth: required by my_workload:build, but missing",
            id="missing argument",
        ),
        pytest.param(
            "def build(context, depth, width=1): ...",
            {},
            "model.depth: required by my_workload:build, but missing",
            id="missing positional",
        ),
        pytest.param(
            "def build(context): ...",
            {"context": 1},
            "model.context: my_workload:build takes no such argument",
            id="the context itself",
        ),
        pytest.param(
            "def build(*, depth): ...",
            {"depth": 3},
            "workload: my_workload:build must take a BuildContext as its first argument",
            id="no context",
        ),
        pytest.param(
            "async def build(context): ...",
            {},
            "workload: my_workload:build is a coroutine; make it a plain function",
            id="coroutine",
        ),
        pytest.param("build = 3", {}, "workload: my_workload:build is not a function", id="number"),
    ],
)
def test_a_function_that_ranks_cannot_call_is_refused(suite_file, module, source, model, said):
    module(source)

    assert refusal(suite_file(workload="my_workload:build", model=model)) == said


@pytest.mark.parametrize(
    ("annotation", "value", "said"),
    [
        ("int", "four", "a whole number, got 'four'"),
        ("int", "4", "a whole number, got '4'"),
        ("int", 4.5, "a whole number, got 4.5"),
        ("int", True, "a whole number, got True"),
        ("int | None", "four", "a whole number, got 'four'"),
        ("Optional[int]", "four", "a whole number, got 'four'"),
        ("int | float", "x", "a whole number or a number, got 'x'"),
        ("bool", 1, "true or false, got 1"),
        ("str", 3, "a text, got 3"),
        ("float", "x", "a number, got 'x'"),
    ],
)
def test_a_value_that_the_annotation_excludes_is_refused(
    suite_file, module, annotation, value, said
):
    module(f"def build(context, *, depth: {annotation} = 1): ...")

    message = refusal(suite_file(workload="my_workload:build", model={"depth": value}))
    assert message == f"model.depth: my_workload:build expects {said}"


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        ("int", 4),
        ("float", 4),
        ("float | None", 0.5),
        ("bool", True),
        ("str", "four"),
        ("Size", "four"),
        ("int | Size", "four"),
        ("Literal['four']", "four"),
        ("list[int]", "four"),
        ("'int'", "four"),
    ],
)
def test_a_value_that_the_annotation_admits_or_leaves_open_is_accepted(
    suite_file, module, annotation, value
):
    module(f"def build(context, depth: {annotation}): ...")

    load_suite(suite_file(workload="my_workload:build", model={"depth": value}))


@pytest.mark.parametrize(
    "source",
    [
        pytest.param("def build(context, depth, *, width=1, **more): ...", id="all kinds"),
        pytest.param("def build(*arguments, **more): ...", id="anything"),
        pytest.param("@some.decorator\ndef build(): ...", id="decorated"),
        pytest.param("def build(): ...\nbuild = partial(build)", id="bound twice"),
        pytest.param("class build:\n    def __init__(self): ...", id="class"),
        pytest.param("def __getattr__(name): ...", id="made on demand"),
    ],
)
def test_a_target_that_the_source_leaves_open_is_accepted(suite_file, module, source):
    module(source)

    load_suite(suite_file(workload="my_workload:build", model={"depth": 3}))


def test_a_folder_of_modules_is_refused(suite_file, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "my_models").mkdir()

    assert refusal(suite_file(workload="my_models:build", model={})) == (
        "workload: 'my_models' is a folder of modules; name one of them"
    )


def test_a_function_of_a_package_is_found(suite_file, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "my_package" / "inner").mkdir(parents=True)
    (tmp_path / "my_package" / "__init__.py").write_text("def build(context): ...")
    (tmp_path / "my_package" / "inner" / "deep.py").write_text("def make(context): ...")

    load_suite(suite_file(workload="my_package:build", model={}))
    load_suite(suite_file(workload="my_package.inner.deep:make", model={}))
    said = refusal(suite_file(workload="my_package.outer:build", model={}))
    assert said.startswith("workload: no module named 'my_package.outer'")


def test_a_module_on_the_import_path_is_found(suite_file, tmp_path):
    (tmp_path / "only_there.py").write_text("def build(context): ...")
    path = suite_file(workload="only_there:build", model={})

    load_suite(path, import_paths=[str(tmp_path)])
    assert "no module named 'only_there'" in refusal(path)


@pytest.mark.parametrize("target", ["a..b:build", "__main__:build", ".a:build", "a.:build"])
def test_an_impossible_module_name_is_refused(suite_file, target):
    assert refusal(suite_file(workload=target, model={})).startswith("workload: ")


def test_an_unreadable_source_is_named(suite_file, module):
    source = module("")
    source.write_bytes(b"\xff")

    said = refusal(suite_file(workload="my_workload:build", model={}))
    assert said.startswith(f"workload: {source} is not Python source: ")


def test_a_package_in_editable_mode_is_found(suite_file, monkeypatch):
    """Such an installation adds a finder, not a directory of sys.path."""
    spec = importlib.util.spec_from_file_location("my_editable", __file__)
    finder = SimpleNamespace(find_spec=lambda name, *_: spec if name == "my_editable" else None)
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, finder])

    load_suite(suite_file(workload="my_editable:refusal", model={}))
