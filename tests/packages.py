"""Copies of the package, as a revision or a container may have them."""

from __future__ import annotations

import shutil
from pathlib import Path

from ddp_perf.launch.interpreter import package_directory


def copied_package(directory: Path, file: str, before: str, after: str) -> Path:
    """Copy ddp_perf into ``directory``, replace a text of one file, and return ``directory``."""
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(package_directory() / "ddp_perf", directory / "ddp_perf", ignore=ignored)
    changed = directory / "ddp_perf" / file
    text = changed.read_text(encoding="utf-8")
    assert before in text
    changed.write_text(text.replace(before, after), encoding="utf-8")
    return directory
