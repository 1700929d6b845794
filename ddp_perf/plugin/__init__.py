"""The pytest plugin. It is silent in a project that does not use the suite.

pytest loads it in every session of the environment that it is installed in. So this module imports
nothing, reads nothing, and registers nothing until the project or the command names the suite.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal

import pytest

_USED = pytest.StashKey[bool]()
# A word of a command that names the suite: an option, or this plugin after -p.
_NAMES_SUITE = re.compile(r"--ddp[-_]|(-p)?ddp_perf\.plugin$")
# The keys of an ini file. A default is applied later: whether one is set is what tells.
INI_KEYS: dict[str, tuple[Literal["string", "bool"], str]] = {
    "ddp_configs": ("string", "directory of suite files (default: bench_configs)"),
    "ddp_baselines": ("string", "directory of baseline files (default: baselines)"),
    "ddp_machine": ("string", "pool of like hosts (see --ddp-machine)"),
    "ddp_settle": ("string", "time to settle (see --ddp-settle; default: 0)"),
    "ddp_accept_improvements": (
        "bool",
        "a settled improvement becomes the level of its case, so that losing it is red"
        " (default: true)",
    ),
}
_FIXTURES = ("ddp_case", "ddp_target", "ddp_measured", "ddp_measure", "ddp_counted")
_REMEDY = (
    "the ini file of a project that uses ddp-perf names its directory of suites, as in"
    " ddp_configs = bench_configs"
)


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    for key, (kind, text) in INI_KEYS.items():
        parser.addini(key, text, type=kind, default=None)
    config: pytest.Config = pluginmanager.getplugin("pytestconfig")
    words = [*_written_out(map(str, config.invocation_params.args))]
    used = config.stash[_USED] = _is_used(config, words)
    if used or not {"-h", "--help"}.isdisjoint(words):
        from ddp_perf.plugin.packages import require_packages

        require_packages()
        from ddp_perf.plugin.options import add_options

        add_options(parser, pluginmanager, used=used)
    elif any(word.startswith("--save-baseline") for word in words):
        parser.extra_info["--save-baseline"] = _REMEDY


def _written_out(words: Iterable[str]) -> Iterator[str]:
    """Yield the words of the command line; those of a file for one that begins with @."""
    for word in words:
        if word.startswith("@"):
            with contextlib.suppress(OSError):  # pytest refuses it
                yield from Path(word[1:]).read_text(encoding="utf-8").splitlines()
        else:
            yield word


def is_named_by_project(config: pytest.Config) -> bool:
    """Return whether the ini file alone, and so every command in the project, loads the suite."""
    named = any(map(_NAMES_SUITE.match, config.getini("addopts")))
    return named or any(config.getini(key) is not None for key in INI_KEYS)


def _is_used(config: pytest.Config, words: list[str]) -> bool:
    """Return whether the project, -o, or a word of the command names the suite."""
    variable = shlex.split(os.environ.get("PYTEST_ADDOPTS", ""))
    try:
        return is_named_by_project(config) or any(map(_NAMES_SUITE.match, [*words, *variable]))
    except ValueError:  # no ini file was read yet: pytest.main has this plugin as an argument
        return True


def pytest_configure(config: pytest.Config) -> None:
    if config.stash[_USED]:
        from ddp_perf.plugin import hooks

        config.pluginmanager.register(hooks)


@pytest.hookimpl(trylast=True)  # once the marks of the test have their arguments
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Name the remedy where a test asks for the suite in a project that does not name it."""
    if metafunc.config.stash[_USED]:
        return
    for name in _FIXTURES:
        if name in metafunc.fixturenames and name not in metafunc._arg2fixturedefs:
            raise pytest.Collector.CollectError(
                f"{metafunc.definition.nodeid} asks for {name}: {_REMEDY}"
            )
