"""A user's ``module:function`` is looked up without being imported: it would import torch."""

from __future__ import annotations

import sys

import pytest

from ddp_perf.config.loading import load_suite
from ddp_perf.errors import ConfigError


@pytest.fixture
def module(tmp_path, monkeypatch):
    """``module(source)`` writes a module that the suite can name; importing it would raise."""
    monkeypatch.syspath_prepend(tmp_path)

    def write(source, name="my_workload"):
        path = tmp_path / f"{name}.py"
        path.write_text(f"{source}\nraise RuntimeError('imported')\n", encoding="utf-8")
        return path

    return write


@pytest.mark.parametrize(
    "source",
    [
        pytest.param("def build(): ...", id="function"),
        pytest.param("class build: ...", id="class"),
        pytest.param("build = lambda: None", id="assignment"),
        pytest.param("from somewhere import build", id="import"),
        pytest.param("from somewhere import make as build", id="import as"),
        pytest.param("from somewhere import *", id="star import"),
        pytest.param("try:\n    def build(): ...\nexcept OSError: ...", id="in a try"),
        pytest.param("if True: ...\nelse:\n    def build(): ...", id="in an else"),
    ],
)
def test_a_target_is_found_without_importing_its_module(suite_file, module, source):
    module(source)

    suite = load_suite(suite_file(workload="my_workload:build"))

    assert suite.workload == "my_workload:build"
    assert "my_workload" not in sys.modules


def test_its_arguments_are_passed_on_unchecked(suite_file, module):
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
def test_a_function_that_is_not_there_is_refused(suite_file, module, source, said):
    module(source)
    path = suite_file(workload="my_workload:build")

    with pytest.raises(ConfigError) as caught:
        load_suite(path)

    assert str(caught.value).startswith(f"{path}: workload: 'my_workload' defines no 'build'")
    assert said in str(caught.value)


def test_an_unknown_module_is_refused_with_where_it_must_be(suite_file):
    with pytest.raises(ConfigError, match=r"workload: no module named 'nowhere_at_all'; it must"):
        load_suite(suite_file(workload="nowhere_at_all:build"))


def test_a_syntax_error_is_named_with_its_line(suite_file, module):
    source = module("def build(: ...")

    with pytest.raises(ConfigError) as caught:
        load_suite(suite_file(workload="my_workload:build"))

    assert f"workload: {source}:1: " in str(caught.value)


@pytest.mark.parametrize("target", ["a:b:c", ":build", "my workload:build", "my-workload:build"])
def test_what_is_no_target_is_refused(suite_file, target):
    with pytest.raises(ConfigError, match="workload: "):
        load_suite(suite_file(workload=target))
