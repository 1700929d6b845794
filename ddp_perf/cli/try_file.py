"""The suite file of a tried script: written for the user, and the command that measures it."""

from __future__ import annotations

import os
import shlex
import tempfile
from pathlib import Path

import typer

from ddp_perf.core.case import Tier
from ddp_perf.errors import ConfigError

CONFIGS = Path("bench_configs")  # where pytest finds suite files
_TESTS = Path("tests")
_FIXTURE = "assert_verdict"  # the fixture of every performance test


def check_writable(file: Path) -> None:
    """Make the directory of a new file. Raises ConfigError if it exists, or cannot be written."""
    if os.path.lexists(file):
        raise ConfigError(f"--write {file}: it exists already; remove it, or name another file")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=file.parent).close()
    except OSError as error:
        raise _refused(file, error) from None


def write_suite(file: Path, text: str) -> None:
    """Write a new suite file. Raises ConfigError if it exists by now, or cannot be written."""
    try:
        with file.open("x", encoding="utf-8", newline="\n") as stream:
            stream.write(text)
    except OSError as error:
        raise _refused(file, error) from None
    typer.echo(f"written: {file}", err=True)


def _refused(file: Path, error: OSError) -> ConfigError:
    return ConfigError(f"--write {file}: it cannot be written: {error.strerror}")


def next_command(file: Path, tier: Tier) -> str:
    """Return the command that measures a suite file, and stores it as the baseline."""
    marks = '"perf and cpu"' if tier == "cpu" else "gpu"
    options = f"-m {marks} {shlex.quote(f'--ddp-config={file}')} --save-baseline"
    if _has_tests():
        return f"pytest {options}"
    return f"ddp-perf init && pytest {_TESTS / 'test_perf.py'} {options}"


def _has_tests() -> bool:
    """Return whether this directory has performance tests."""
    return any(map(_asserts, [*Path().glob("test_*.py"), *_TESTS.rglob("test_*.py")]))


def _asserts(file: Path) -> bool:
    try:
        return _FIXTURE in file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
