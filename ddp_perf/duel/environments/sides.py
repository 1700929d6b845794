"""An environment as a user names it: one side of a duel, or an interpreter with variables."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from ddp_perf.duel.sides.parsing import parse_side
from ddp_perf.duel.sides.preparing import prepare
from ddp_perf.duel.values import PreparedSide, Side, SideName
from ddp_perf.errors import SideError

_INTERPRETERS = ("python", "packages")


def parse_environment(text: str, name: SideName, root: Path) -> list[Side]:
    """Return the interpreter, the variables, or both, as sides of a duel. Raises SideError.

    As in ``python:/venv/bin/python env:OMP_NUM_THREADS=2`` and ``torch==2.11.0``.
    """
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise SideError(f"{text}: {error}") from None
    sides = [parse_side(word, name, root) for word in words]
    kinds = ["interpreter" if side.kind in _INTERPRETERS else side.kind for side in sides]
    if not sides or set(kinds) - {"interpreter", "env", "tree"} or len(set(kinds)) < len(kinds):
        raise SideError(
            f"{text!r} is not an environment; write python:/venv/bin/python, torch==VERSION,"
            ' env:NAME=VALUE, or two of them: "python:/venv/bin/python env:NAME=VALUE"; for'
            " commits use --good and --bad"
        )
    return sides


@contextlib.contextmanager
def prepare_environment(
    sides: list[Side], root: Path, *, on_progress: Callable[[str], None]
) -> Iterator[PreparedSide]:
    """Make the sides ready, and yield them as one. Raises SideError."""
    with contextlib.ExitStack() as stack:
        ready = [
            stack.enter_context(prepare(side, root, on_progress=on_progress)) for side in sides
        ]
        whole = next((one for one in ready if one.side.kind in _INTERPRETERS), ready[0])
        variables = {name: value for one in ready for name, value in one.variables.items()}
        spec = " ".join(side.spec for side in sides)
        yield msgspec.structs.replace(
            whole,
            side=msgspec.structs.replace(whole.side, spec=spec, label=spec),
            environ={**whole.environ, **variables},
            variables=variables,
        )
