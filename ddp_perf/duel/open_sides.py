"""Both sides of a duel with the launchers of their ranks: launched in turn, counted, compared."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

from msgspec.structs import replace

from ddp_perf.core.case import Scalar
from ddp_perf.core.launch import LaunchFailure
from ddp_perf.core.work import CountRequest, Site, StepWork
from ddp_perf.duel.inventory import read_inventory, variables_of
from ddp_perf.duel.values import CaseDuel, PreparedSide, SideCase, SideConditions, SideName
from ddp_perf.errors import LaunchError
from ddp_perf.launch.engine import Engine
from ddp_perf.launch.engines.machine import ThisMachine, UserCommand
from ddp_perf.launch.launcher import Launcher
from ddp_perf.launch.server_launcher import ServerLauncher
from ddp_perf.render.units import change_text
from ddp_perf.session.measure.environment import check_runtime, describe_environment
from ddp_perf.session.measure.machine import open_machine
from ddp_perf.system.capacity import Capacity
from ddp_perf.work.changes import work_changes
from ddp_perf.work.session import count_case, option_changes
from ddp_perf.work.values import WorkChange, edited_lines

# The launcher of a side: its ranks run in the side, and nothing else does.


class SideLauncher(Launcher, Protocol):
    """A launcher that also counts."""

    def count(self, request: CountRequest) -> StepWork | LaunchFailure:
        """Count a step of one rank, on a CPU. Raises LaunchError if no rank can be started."""
        ...


def side_launcher(prepared: PreparedSide) -> SideLauncher:
    """Return a launcher of the side, which starts nothing before it is asked. Close it."""
    if prepared.command is not None:
        engine: Engine = UserCommand(
            prepared.command,
            environ=prepared.environ,
            package=prepared.package,
            working_directory=prepared.root,
        )
    else:
        engine = ThisMachine(
            interpreter=prepared.interpreter,
            environ=prepared.environ,
            package=prepared.package,
            working_directory=prepared.root,  # files that a workload opens by a relative path
        )
    return ServerLauncher(engine)


# Both sides of a duel, with the launchers of their ranks, on a leased machine.


class OpenSide(NamedTuple):
    """A side that can launch."""

    prepared: PreparedSide
    launcher: SideLauncher

    @property
    def name(self) -> SideName:
        return self.prepared.side.name

    @property
    def import_paths(self) -> tuple[str, ...]:
        """The directories from which its ranks first import a user's workload."""
        return self.prepared.import_paths


@contextlib.contextmanager
def open_sides(
    a: PreparedSide,
    b: PreparedSide,
    capacity: Capacity,
    *,
    on_wait: Callable[[str], None],
) -> Iterator[tuple[OpenSide, OpenSide]]:
    """Lease the machine, and yield both sides with their launchers, which are closed at the end.

    ``on_wait`` is that of `open_machine`. Raises LeaseError.
    """
    first, second = OpenSide(a, side_launcher(a)), OpenSide(b, side_launcher(b))
    machine = open_machine(capacity, first.launcher, on_wait=on_wait)
    with machine, contextlib.closing(second.launcher):
        yield first, second


# The software of both sides, and how it differs.


def side_conditions(
    side: OpenSide, cases: Sequence[SideCase], capacity: Capacity
) -> SideConditions:
    """Return the versions, variables and packages of a side.

    Raises LaunchError if its torch cannot be imported, or cannot use the GPUs, and SideError if its
    packages cannot be listed.
    """
    case = cases[0].of(side.name)
    runtime = side.launcher.runtime(case)
    check_runtime(case.tier, runtime, capacity.machine)
    environment = describe_environment(capacity, case.tier, runtime, side.prepared.root)
    return SideConditions(
        runtime=runtime,
        environment=replace(environment, variables=variables_of(side.prepared, case.tier)),
        packages=_packages(side.prepared),
    )


def _packages(side: PreparedSide) -> dict[str, str]:
    """Return the version of each package that the side's interpreter can import.

    What a command starts may be in a container, whose packages are not read.
    """
    if side.command is not None:
        return {}
    found = read_inventory(side.interpreter, side.environ).distributions
    return {name: one.version for name, one in found.items()}


def differences(a: SideConditions, b: SideConditions) -> tuple[str, ...]:
    """Return what differs in the software: ``torch: 2.11.0 → 2.13.0``; then the packages."""
    found = _changes(a.environment.conditions(), b.environment.conditions(), without="commit")
    if a.packages and b.packages:
        found += _changes(a.packages, b.packages, without="torch")
    return tuple(found)


def _changes(before: Mapping[str, object], after: Mapping[str, object], without: str) -> list[str]:
    return [
        change_text(f"{name}:", before.get(name), after.get(name))
        for name in dict.fromkeys((*before, *after))
        if before.get(name) != after.get(name) and name != without
    ]


def option_differences(cases: SideCase, a: PreparedSide, b: PreparedSide) -> tuple[str, ...]:
    """Return the options of the suites that differ, without the variables of an "env" side."""
    of_sides = {f"env.{name}" for name in (*a.variables, *b.variables)}

    def options(work: Mapping[str, Scalar]) -> dict[str, Scalar]:
        return {name: value for name, value in work.items() if name not in of_sides}

    return option_changes(options(cases.a.work()), options(cases.b.work()), None)


# The counts of both sides' steps, and how they differ.


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
