"""Run a script as Python would: as ``__main__``, with its arguments, its folder searched first."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Sequence
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


def run_as_main(run: ScriptRun, file: Path | None) -> None:
    """Run the script to its end. What it raises, SystemExit too, is raised here."""
    if file is None:
        sys.argv = [run.script, *run.args]
        runpy.run_module(run.script, run_name="__main__", alter_sys=True)
        return
    sys.argv = [str(file), *run.args]
    sys.path.insert(0, str(file.parent))
    runpy.run_path(str(file), run_name="__main__")
