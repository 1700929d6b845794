"""The two sides of the second stage: the code of a stored session, and today's."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping

import msgspec

from ddp_perf.core.case import Tier
from ddp_perf.duel.launchers import side_launcher
from ddp_perf.duel.open_sides import OpenSide
from ddp_perf.duel.sides.parsing import parse_side
from ddp_perf.duel.sides.preparing import prepare
from ddp_perf.duel.sources import Project
from ddp_perf.duel.values import PreparedSide, Side
from ddp_perf.settle.references import Reference
from ddp_perf.system.variables import training_variables

# Opens the code of a reference and today's; its last argument receives lines for people.
Sides = Callable[
    [Reference, Project, Callable[[str], None]],
    contextlib.AbstractContextManager[tuple[OpenSide, OpenSide]],
]


@contextlib.contextmanager
def both_sides_open(
    reference: Reference, project: Project, say: Callable[[str], None]
) -> Iterator[tuple[OpenSide, OpenSide]]:
    """Yield the code of the reference and today's, on a machine that is leased already.

    Raises SideError.
    """
    with contextlib.ExitStack() as stack:
        prepared = [
            stack.enter_context(
                prepare(side, project.root, on_progress=say, import_paths=project.import_paths)
            )
            for side in (_before(reference, project), parse_side(".", "B", project.root))
        ]
        a, b = _with_variables(prepared[0], reference), prepared[1]
        sides = [OpenSide(side, side_launcher(side)) for side in (a, b)]
        for side in sides:
            stack.enter_context(contextlib.closing(side.launcher))
        yield sides[0], sides[1]


def _before(reference: Reference, project: Project) -> Side:
    """Return the reference as a side: its code or, if that is today's, its packages."""
    if reference.packages is not None:
        return parse_side(reference.packages, "A", project.root)
    return Side(
        name="A",
        spec=reference.date,
        kind="revision",
        label=reference.label,
        commit=reference.state.commit,
        patch=str(reference.patch) if reference.state.patch else None,
    )


def _with_variables(side: PreparedSide, reference: Reference) -> PreparedSide:
    """Return the side with the variables of the reference, in the place of today's."""
    tier: Tier = "gpu" if reference.environment.cuda is not None else "cpu"
    today = training_variables(tier, side.environ)
    before: Mapping[str, str] = reference.environment.variables
    if today == before:
        return side
    kept = {name: value for name, value in side.environ.items() if name not in today}
    return msgspec.structs.replace(side, environ={**kept, **before})
