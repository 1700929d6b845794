"""The pytest plugin. It is silent in a project that does not use the suite.

pytest loads it in every session of the environment that it is installed in. So this module imports
nothing, reads nothing, and registers nothing until the project or the command names the suite.
"""

from __future__ import annotations

import os
import re
from typing import Literal

import pytest

_USED = pytest.StashKey[bool]()
# A word of a command that names the suite: an option, or this plugin after -p.
_NAMES_SUITE = re.compile(r"--ddp|(-p)?ddp_perf\.plugin$")
# The keys of an ini file. A default is applied later: whether one is set is what tells.
_KEYS: dict[str, tuple[Literal["string", "bool"], str]] = {
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
    for key, (kind, text) in _KEYS.items():
        parser.addini(key, text, type=kind, default=None)
    config: pytest.Config = pluginmanager.getplugin("pytestconfig")
    words = [str(word) for word in config.invocation_params.args]
    used = config.stash[_USED] = _is_used(config, words)
    if used or not {"-h", "--help"}.isdisjoint(words):
        from ddp_perf.plugin.packages import require_packages

        require_packages()
        from ddp_perf.plugin.options import add_options

        add_options(parser, pluginmanager, used=used)
    elif any(word.startswith("--save-baseline") for word in words):
        parser.extra_info["--save-baseline"] = _REMEDY


def _is_used(config: pytest.Config, words: list[str]) -> bool:
    """Return whether the ini file, or -o, has a key of the suite, or the command a word of it."""
    try:
        words = [*words, *config.getini("addopts"), *os.environ.get("PYTEST_ADDOPTS", "").split()]
    except ValueError:  # no ini file was read yet: pytest.main has this plugin as an argument
        return True
    is_set = any(config.getini(key) is not None for key in _KEYS)
    return is_set or any(map(_NAMES_SUITE.match, words))


def pytest_configure(config: pytest.Config) -> None:
    if config.stash[_USED]:
        from ddp_perf.plugin import hooks

        config.pluginmanager.register(hooks)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Name the remedy where a test asks for the suite in a project that does not name it."""
    if metafunc.config.stash[_USED]:
        return
    for name in _FIXTURES:
        if name in metafunc.fixturenames and name not in metafunc._arg2fixturedefs:
            raise pytest.Collector.CollectError(
                f"{metafunc.definition.nodeid} asks for {name}: {_REMEDY}"
            )
