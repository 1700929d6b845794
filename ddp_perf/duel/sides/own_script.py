"""The script of a case on a side: each revision runs its own, never that of the user's tree."""

from __future__ import annotations

import os
import sysconfig
from pathlib import Path

from ddp_perf.config.python_source import find_module
from ddp_perf.core.case import Case
from ddp_perf.duel.values import PreparedSide

# Folders of installed packages. That of torch may be another one than the interpreter's own.
_INSTALLED = {"site-packages", "dist-packages"}


def foreign_script(case: Case, side: PreparedSide) -> str | None:
    """Return why ranks of a revision would run a script that is not the revision's, or None.

    An installed script is the same in all revisions, as any other package is.
    """
    if case.script is None or side.side.kind != "revision":
        return None
    if not case.script.is_module:
        if not os.path.isabs(case.script.script):
            return None
        return (
            f"runs {case.script.script} whatever the revision; give the path of the script from"
            " the root of the project on"
        )
    python_path = side.environ.get("PYTHONPATH", "").split(os.pathsep)
    own = [*side.import_paths, *filter(None, python_path)]
    spec = find_module(case.script.script, own)
    places = [Path(path).resolve() for path in (*own, sysconfig.get_paths()["stdlib"])]
    found = [] if spec is None else [spec.origin, *(spec.submodule_search_locations or [])]
    for origin in (Path(path).resolve() for path in found if path):
        if _INSTALLED & {*origin.parts} or any(map(origin.is_relative_to, places)):
            return None
    return f"has no module {case.script.script} in {side.side.label}"
