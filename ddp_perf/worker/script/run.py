"""Run a script as Python would: as ``__main__``, with its arguments, its folder searched first."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import runpy
import sys
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path

from ddp_perf.core.script import ScriptRun
from ddp_perf.errors import ScriptError


def script_file(run: ScriptRun, roots: Sequence[str]) -> Path | None:
    """Return the absolute path of the script in the first root that has it; None for a module.

    Raises ScriptError if none of them has it.
    """
    if run.is_module:
        return None
    for root in roots:
        if (path := Path(root) / run.script).is_file():
            return path.resolve()
    raise ScriptError(f"there is no file {run.script} in {' or '.join(roots)}")


def become_main(run: ScriptRun, file: Path | None) -> None:
    """Set the arguments, and let imports search the script's folder first, as Python does.

    Raises ScriptError if the script is a module that does not exist.
    """
    sys.argv = [run.script if file is None else str(file), *run.args]
    if file is not None:
        sys.path.insert(0, str(file.parent))
        return
    try:
        found = importlib.util.find_spec(run.script) is not None
    except ModuleNotFoundError as error:  # of a package that it is in, or that one imports
        if not f"{run.script}.".startswith(f"{error.name}."):
            raise
        found = False
    if not found:
        raise ScriptError(f"there is no module {run.script}; is it below the root of the project?")


def run_as_main(run: ScriptRun, file: Path | None) -> None:
    """Run the script to its end. What it raises, SystemExit too, is raised here."""
    with _forks_end_here():
        if file is None:
            runpy.run_module(run.script, run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(str(file), run_name="__main__")


@contextlib.contextmanager
def _forks_end_here() -> Iterator[None]:
    """End processes that the script forks at its end, as Python would: they are no ranks."""
    process = os.getpid()
    code = 0
    try:
        yield
    except BaseException as error:
        if os.getpid() == process:
            raise
        code = 1
        if isinstance(error, SystemExit):
            code = error.code if isinstance(error.code, int) else int(error.code is not None)
        else:
            traceback.print_exc()
    finally:
        if os.getpid() != process:
            os._exit(code)
