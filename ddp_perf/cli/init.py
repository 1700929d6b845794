"""``ddp-perf init [DIR]``: the files that a project needs to measure its own training."""

from __future__ import annotations

import importlib.resources
import json
import os
import re
import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated

import typer

from ddp_perf.config.loading import find_suites, suite_schema
from ddp_perf.errors import ConfigError

_WORKLOAD = "perf_workload.py"
_SUITE, _SCHEMA = "bench_configs/example.yaml", "bench_configs/schema.json"
_TESTS, _COUNTS, _INI = "tests/test_perf.py", "tests/test_work.py", "pytest.ini"
_PURPOSES = {
    _WORKLOAD: "builds the model that is measured: put your own here",
    _SUITE: "lists numbers of ranks, batch sizes and tolerances",
    _SCHEMA: "lets an editor explain and complete a suite file",
    _TESTS: "asserts each metric of each case",
    _COUNTS: "counts what each step does, on any machine",
    _INI: "keeps a bare pytest from measuring and counting",
}
_EXAMPLE = (_WORKLOAD, _SUITE)  # left out where there is a suite to measure
_DESELECTED = ("perf", "work")  # the markers of tests that a bare pytest leaves out
# The files that pytest reads its settings from, and how the section of the settings begins.
_SETTINGS = {
    "pytest.toml": "",
    ".pytest.toml": "",
    _INI: "",
    ".pytest.ini": "",
    "pyproject.toml": r"^\[tool\.pytest(\.ini_options)?\]",
    "tox.ini": r"^\[pytest\]",
    "setup.cfg": r"^\[tool:pytest\]",
}
_OF_SUITE = re.compile(r"^ddp_\w+\s*=", re.MULTILINE)  # a key by which the plugin knows its project
# The value of addopts, a list in TOML or a text that may go on in indented lines; and its last -m.
_ADDOPTS = re.compile(r"^addopts\s*=\s*(\[[^]]*\]|.*(?:\n[ \t].*)*)", re.MULTILINE)
_EXPRESSION = re.compile(r"""(?<![\w-])-m\b[\\"',=\s]*([^"'\\\n]*)""")


def init(
    directory: Annotated[
        Path, typer.Argument(metavar="[DIR]", help="The root of your project.")
    ] = Path(),
) -> None:
    """Write the tests, a suite and a workload that a project needs to measure its training.

    No file is changed. If one of the files exists, nothing is written. If pytest has settings in
    this directory, pytest.ini is left out, and what they lack is printed. If bench_configs/ has a
    suite file, as ddp-perf try writes it, the suite and the workload are left out.

    \b
    Exit code:
      0  written
      4  usage: a file exists already, or cannot be written
    """
    settings = _settings_of_pytest(directory)
    left_out = [] if settings is None else [_INI]
    if find_suites(directory / Path(_SUITE).parent):
        left_out += _EXAMPLE
    texts = {name: _text(name) for name in _PURPOSES if name not in left_out}
    _check_absent(directory, texts)
    for name, text in texts.items():
        _write(directory / name, text)
    width = max(len(str(directory / name)) for name in texts)
    for name in texts:
        typer.echo(f"wrote {directory / name!s:<{width}}  {_PURPOSES[name]}")
    if settings is not None and (lacking := [*_lacking(settings)]):
        typer.echo(f"{settings} has pytest's settings, and was left as it is.")
        for what, line in lacking:
            typer.echo(f"{what}:\n    {line}")
    enter = "" if directory == Path() else f"cd {shlex.quote(str(directory))} && "
    typer.echo(f'next: {enter}pytest {_TESTS} -m "perf and cpu" --save-baseline')


def _settings_of_pytest(directory: Path) -> Path | None:
    """Return the file with pytest's settings in this directory, or None if there is none."""
    for name, section in _SETTINGS.items():
        path = directory / name
        if path.is_file() and re.search(section, _read(path), re.MULTILINE):
            return path
    return None


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None


def _text(name: str) -> str:
    """Return the content of a file: the schema of this version, or the package's example."""
    if name == _SCHEMA:
        return json.dumps(suite_schema(), indent=1) + "\n"
    examples = importlib.resources.files("ddp_perf.cli") / "example_project"
    return examples.joinpath(*name.split("/")).read_text(encoding="utf-8")


def _check_absent(directory: Path, names: Iterable[str]) -> None:
    """Raise ConfigError if one of the files exists, so that nothing is written by halves."""
    found = [name for name in names if os.path.lexists(directory / name)]
    if found:
        raise ConfigError(
            f"{directory.absolute()} has {', '.join(found)} already, so nothing was written; rename"
            " or remove what you do not need, or name another directory: ddp-perf init DIR"
        )


def _write(path: Path, text: str) -> None:
    """Write a new file and its directory. Raises ConfigError if it exists by now."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8", newline="\n") as file:
            file.write(text)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error.strerror}") from None


def _lacking(settings: Path) -> Iterator[tuple[str, str]]:
    """Yield what is to be added to a file with pytest's settings, and the line."""
    text, is_toml = _read(settings), settings.suffix == ".toml"
    if not _OF_SUITE.search(text):
        time = '"3m"' if is_toml else "3m"
        yield "Add this line to them, or pytest leaves the suite out", f"ddp_settle = {time}"
    found = _ADDOPTS.search(text)
    value = found[1] if found else ""
    expressions = _EXPRESSION.findall(value)
    given = expressions[-1] if expressions else ""  # pytest uses the last one
    missing = [f"not {mark}" for mark in _DESELECTED if not re.search(rf"\bnot {mark}\b", given)]
    if not missing:
        return
    in_list = value.startswith("[") if found else is_toml
    lacking = " and ".join(missing)
    lacking = f'"-m", "{lacking}"' if in_list else f"-m '{lacking}'"
    if expressions:
        what = "Let the expression of -m in addopts be this"
        line = " and ".join(["(…)", *missing])
    elif found:
        what, line = "Add this to addopts", lacking
    else:
        what, line = "Add this line to them", f"addopts = {f'[{lacking}]' if in_list else lacking}"
    yield f"{what}, or a bare pytest measures and counts, too", line
