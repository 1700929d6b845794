"""The script of a suite has to be there before anything is launched."""

from __future__ import annotations

import pytest
import yaml

from ddp_perf.config.loading import load_suite
from ddp_perf.errors import ConfigError

SUITE = {"suite": "mine", "tier": "cpu", "args": [], "world_sizes": [1], "batch_sizes": [64]}


@pytest.fixture
def load(tmp_path, monkeypatch):
    """A function that loads a suite of a script, with the roots where it is searched."""
    root = tmp_path / "root"
    (root / "ours").mkdir(parents=True)
    for name in ("train.py", "ours/__init__.py", "ours/train.py"):
        (root / name).touch()
    monkeypatch.chdir(root)

    def load(script, *roots):
        path = tmp_path / "mine.yaml"
        path.write_text(yaml.safe_dump({**SUITE, "script": script}), encoding="utf-8")
        return load_suite(path, [str(tmp_path / name) for name in roots])

    return load


@pytest.mark.parametrize("script", ["train.py", "ours/train.py", "ours.train", "json.tool"])
def test_a_file_or_a_module_is_searched_in_the_roots(load, script):
    assert load(script, "other", "root").script == script


def test_without_roots_it_is_searched_in_the_working_directory(load):
    assert load("train.py").script == "train.py"


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("train.py", "there is no file train.py in .*/other; give its path from there on"),
        ("ours.train", "there is no module ours.train in .*/other; name a module"),
    ],
)
def test_with_roots_the_working_directory_is_none_of_them(load, script, words):
    with pytest.raises(ConfigError, match=words):
        load(script, "other")


def test_a_package_needs_a_main_file(load, tmp_path):
    with pytest.raises(ConfigError, match=r"package ours has no __main__.py; name one of its mod"):
        load("ours", "root")

    (tmp_path / "root" / "ours" / "__main__.py").touch()
    assert load("ours", "root").script == "ours"
