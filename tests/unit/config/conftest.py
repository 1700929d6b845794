"""Suite files with the changes of a test."""

from __future__ import annotations

import pytest
import yaml

from tests.builders import COLLECTIVES, SCRIPTS, SUITE


@pytest.fixture
def suite_file(tmp_path):
    """``suite_file(steps=3, name="a.yaml")`` writes a suite file; ... leaves a field out."""
    return lambda name="suite.yaml", **changes: _written(tmp_path / name, {**SUITE, **changes})


@pytest.fixture
def collectives_suite(tmp_path):
    """``collectives_suite(sizes=["1KiB"])`` writes a suite file of collectives."""
    return lambda **changes: _written(tmp_path / "links.yaml", {**COLLECTIVES, **changes})


@pytest.fixture
def script_suite(tmp_path, python_file):
    """``script_suite(args=["--epochs", "2"])`` writes a suite file of a script that is there."""
    python_file("train.py")
    return lambda name="script.yaml", **changes: _written(tmp_path / name, {**SCRIPTS, **changes})


@pytest.fixture
def python_file(tmp_path, monkeypatch):
    """``python_file("a/b.py", "x = 1")`` writes a file into the current directory."""
    monkeypatch.chdir(tmp_path)

    def write(name, text=""):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    return write


def _written(path, fields):
    given = {key: value for key, value in fields.items() if value is not ...}
    path.write_text(yaml.safe_dump(given), encoding="utf-8")
    return path
