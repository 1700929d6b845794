"""A path that pytest mistakes for that of a test, and so for the place of the project.

pytest searches for its root directory before it has any plugin's options: `--ddp-report DIR` is
then an unknown option and a test path. It leaves out what begins with a dash: `--ddp-report=DIR`.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

PATH_OPTIONS = ("--ddp-cluster", "--ddp-config", "--ddp-json", "--ddp-report")


def refuse_misled_root(config: pytest.Config) -> None:
    """Raise UsageError if the value of an option may have misled pytest's search for its root."""
    started = config.invocation_params.dir
    if config.option.rootdir or config.option.inifilename:
        return
    if config.inipath and started.is_relative_to(config.inipath.parent):
        return  # the root is that of the directory where pytest was started
    for option, value in _apart(config):
        path = Path(os.path.abspath(started / value))
        if path.exists() and not path.is_relative_to(started):
            raise pytest.UsageError(
                f"{option} {value}: pytest took the path after the space for that of a test, and"
                f" {config.rootpath} for the project; write {shlex.quote(f'{option}={value}')}"
            )


def _apart(config: pytest.Config) -> Iterator[tuple[str, str]]:
    """Yield the options of the command line whose value is an argument of its own."""
    for option, value in pairwise(map(str, config.invocation_params.args)):
        if option in PATH_OPTIONS:
            yield option, value
