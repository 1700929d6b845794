"""The machines of two sides, and how they differ: then no verdict about the code is possible."""

from __future__ import annotations

from ddp_perf.render.units import change_text
from ddp_perf.session.compared_side import ComparedSide
from ddp_perf.session.gate.comparability import checked_conditions


def machine_differences(old: ComparedSide, new: ComparedSide) -> tuple[str, ...]:
    """Return how the machines of the two sides differ: accelerator, link, memory, power limit.

    A side that has all accelerators of the other one, and more, is no other machine. A link counts
    if a case that both sides have uses it.
    """
    before, after = old.accelerators(), new.accelerators()
    if not (before.keys() <= after.keys() or after.keys() <= before.keys()):
        names = [
            ", ".join(f"{name} ({key})" for key, name in accelerators.items())
            for accelerators in (before, after)
        ]
        return (f"accelerator {names[0]} → {names[1]}",)
    found = set()
    measured = old.sessions[0].measured(), new.sessions[0].measured()
    for key in measured[0].keys() & measured[1].keys():
        (suite, one), (other, _) = measured[0][key], measured[1][key]
        for name, *values in checked_conditions(
            suite.environment, other.environment, one.case.world_size, one.case.nodes
        ):
            if values[0] != values[1]:
                found.add(change_text(name, *values))
    return tuple(sorted(found))
