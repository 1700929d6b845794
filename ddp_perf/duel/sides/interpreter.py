"""Interpreters that can run ranks."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from ddp_perf.errors import SideError
from ddp_perf.launch.rank_packages import RANK_PACKAGES, install_command, missing_in

_PATIENCE_S = 300.0  # an import of torch from a cold network disk takes minutes
_OLDEST = (3, 10)


def parse_interpreter(text: str) -> str:
    """Return the absolute path of ``text``, a path or a name on PATH. Raises SideError.

    A link stays: the interpreter of a virtual environment is one.
    """
    named = text if os.sep in text else shutil.which(text)
    path = Path(named or text).expanduser().absolute()
    if text and path.is_dir():
        inside = Path(text, "bin", "python")
        raise SideError(f"python:{text}: a directory; write python:{inside}")
    if not text or not path.exists():
        raise SideError(f"python:{text}: no such interpreter; write python:/path/to/python")
    if not os.access(path, os.X_OK):
        raise SideError(f"python:{text}: cannot be executed; write python:/path/to/python")
    return str(path)


def check_interpreter(interpreter: str, environ: Mapping[str, str]) -> None:
    """Raise SideError unless the interpreter can import what ranks need."""
    shown = _run(interpreter, "import sys; print(*sys.version_info[:2])", environ).split()
    if tuple(map(int, shown)) < _OLDEST:
        oldest = ".".join(map(str, _OLDEST))
        raise SideError(f"{interpreter}: Python {'.'.join(shown)}; ranks need {oldest} or later")
    try:
        missing = missing_in(interpreter, environ)
    except (OSError, subprocess.SubprocessError) as error:
        raise SideError(f"{interpreter}: cannot look for packages: {error}") from None
    if missing:
        raise SideError(
            f"{interpreter}: lacks {', '.join(missing)}, which ranks need; run"
            f"\n{install_command(missing, interpreter)}"
        )
    _run(interpreter, f"import {', '.join(RANK_PACKAGES)}", environ)


def run_interpreter(
    interpreter: str, arguments: Sequence[str], environ: Mapping[str, str], *, failure: str
) -> subprocess.CompletedProcess[str]:
    """Run an interpreter, and return how it ended.

    Raises SideError with ``failure`` if it cannot be started, or does not answer.
    """
    try:
        return subprocess.run(
            [interpreter, *arguments],
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=_PATIENCE_S,
        )
    except subprocess.TimeoutExpired:
        raise SideError(f"{interpreter}: {failure}: no answer in {_PATIENCE_S:.0f} s") from None
    except OSError as error:
        raise SideError(f"{interpreter}: {failure}: cannot be started: {error.strerror}") from None


def output_of(interpreter: str, code: str, environ: Mapping[str, str], *, failure: str) -> str:
    """Run code in an interpreter and return what it prints. Raises SideError with ``failure``."""
    done = run_interpreter(interpreter, ("-c", code), environ, failure=failure)
    if done.returncode != 0:
        reason = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise SideError(f"{interpreter}: {failure}: {reason}; repair it, or name another")
    return done.stdout


def _run(interpreter: str, code: str, environ: Mapping[str, str]) -> str:
    return output_of(interpreter, code, environ, failure=f"fails at `{code}`")
