"""A misspelt option: pytest's error names the option of this plugin that was probably meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

import pytest

_PREFIXES = ("--ddp", "--save")  # of options that no other plugin is likely to have


def suggest_options(
    parser: pytest.Parser, known: Iterable[str], pluginmanager: pytest.PytestPluginManager
) -> None:
    """Let pytest's error on the command line name the nearest option of each misspelt one.

    pytest writes `Parser.extra_info` below such an error, and refuses misspelt options after the
    last plugin has added its own.
    """
    config = pluginmanager.get_plugin("pytestconfig")
    for argument in config.invocation_params.args if config else ():
        name = str(argument).partition("=")[0]
        nearest = _nearest(name, known) if name.startswith(_PREFIXES) else None
        if nearest not in (name, None):
            parser.extra_info[name] = f"did you mean {nearest}?"


def _nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the nearest option, or None if none is near. All begin alike, which counts nothing."""
    bare = {_bare(option): option for option in known}
    matches = difflib.get_close_matches(_bare(name), bare, n=1)
    if not matches:
        matches = [option for option in bare if _bare(name) and option.startswith(_bare(name))]
    return bare[matches[0]] if len(matches) == 1 else None


def _bare(name: str) -> str:
    """Return ``--ddp-world-sizes`` as ``worldsizes``."""
    return name.replace("-", "").replace("_", "").removeprefix("ddp")
