"""The software of both sides, and how it differs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from ddp_perf.core.case import Scalar, Tier
from ddp_perf.duel.inventory import read_inventory
from ddp_perf.duel.open_sides import OpenSide
from ddp_perf.duel.values import PreparedSide, SideCase, SideConditions
from ddp_perf.render.units import change_text
from ddp_perf.session.measure.environment import check_runtime, describe_environment
from ddp_perf.system.capacity import Capacity
from ddp_perf.system.variables import training_variables
from ddp_perf.work.options import option_changes


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
        environment=msgspec.structs.replace(
            environment, variables=_variables(side.prepared, case.tier)
        ),
        packages=_packages(side.prepared),
    )


def _variables(side: PreparedSide, tier: Tier) -> dict[str, str]:
    """Return the variables that change training, and all that the side itself sets."""
    return {**training_variables(tier, side.environ), **side.variables}


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
