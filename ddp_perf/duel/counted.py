"""The counts of both sides' steps, and how they differ."""

from __future__ import annotations

from typing import NamedTuple

from msgspec.structs import replace

from ddp_perf.core.launch import LaunchFailure
from ddp_perf.core.work import Site, StepWork
from ddp_perf.duel.open_sides import OpenSide
from ddp_perf.duel.values import CaseDuel
from ddp_perf.errors import LaunchError
from ddp_perf.work.changes import work_changes
from ddp_perf.work.counting import count_case
from ddp_perf.work.edited_lines import edited_lines
from ddp_perf.work.values import WorkChange


class CountDifference(NamedTuple):
    """The work that B's step does otherwise, as `CaseDuel` has it."""

    work: tuple[WorkChange, ...] | None = None
    lines: tuple[Site, ...] = ()
    uncounted: str | None = None

    def added_to(self, case: CaseDuel) -> CaseDuel:
        return replace(case, work=self.work, lines=self.lines, uncounted=self.uncounted)


def count_both(case: CaseDuel, a: OpenSide, b: OpenSide) -> CountDifference:
    """Count the step of a case on both sides."""
    cases = case.cases
    if not (cases.a.trains and cases.b.trains):
        return CountDifference(uncounted="a collective by itself has no counts")
    counted: list[StepWork] = []
    for side in (a, b):
        try:
            found = count_case(cases.of(side.name), side.launcher, side.import_paths)
        except LaunchError as error:  # the verdict on the time needs no counts
            return CountDifference(uncounted=f"side {side.name}: {error}")
        if isinstance(found, LaunchFailure):
            return CountDifference(uncounted=f"side {side.name}: {found.detail}")
        counted.append(found)
    old, new = counted
    # Other options run other lines of this package, which are no edit.
    package_differs = a.prepared.package != b.prepared.package and not case.options
    lines = edited_lines(old, new, package_differs=package_differs)
    return CountDifference(work=work_changes(old, new), lines=lines)
