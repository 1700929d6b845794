"""May figures of one machine be held against another's, and what changed between the two?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ddp_perf.core.baseline import CaseBaseline
from ddp_perf.core.environment import Environment
from ddp_perf.render.units import field_changes

_SAME = 0.05  # memory and power limits that differ by less are of one class
_SOFTWARE = ("torch", "cuda", "cudnn", "nccl", "driver", "blas")
# Shown beside a verdict, and no obstacle: that change is often what is being tested.
_INFORMATIVE = (
    *("driver", "cuda", "nccl", "torch", "cudnn", "blas", "python", "os", "host"),
    *("sm_clock_mhz", "ecc", "persistence"),
)


def other_machine(stored: CaseBaseline, now: Environment, *, world_size: int) -> str | None:
    """The first of the stored sessions that another machine measured, and how that differs; None
    where there is none. Any stands in the way: a level of two machines is none.
    """
    for session in stored.sessions:
        if found := mismatches(session.environment, now, world_size=world_size):
            return f"the session of {session.date[:10]} is of another machine: {'; '.join(found)}"
    return None


def mismatches(stored: Environment, now: Environment, *, world_size: int) -> list[str]:
    """What makes another machine of it for a case, each with both values; empty: comparable.

    What either side does not know is not held against the other.
    """
    return [
        f"{name} {before}, here {after}"
        for name, before, after in _checked(stored, now, world_size)
        if before != after
    ]


def same_software(stored: Environment, now: Environment) -> bool:
    """Whether the control may speak for the machine: an upgrade that slows a matrix product must
    not be excused as "the machine moved".
    """
    return all(getattr(stored, name) == getattr(now, name) for name in _SOFTWARE)


def changes(stored: Environment, now: Environment) -> list[str]:
    """What else differs, as ``torch 2.12.0 → 2.13.0``."""
    variables = sorted(stored.variables.keys() | now.variables.keys())
    return environment_differences(stored, now, (*_INFORMATIVE, *variables))


def environment_differences(
    before: Environment, after: Environment, names: Iterable[str]
) -> list[str]:
    """Of these conditions, with both values."""
    return field_changes(before.conditions(), after.conditions(), names)


def _checked(
    stored: Environment, now: Environment, world_size: int
) -> Iterator[tuple[str, str, str]]:
    """Name and both values of each checked field, where both are known."""
    # Not by name: drivers before 2021 write it without "NVIDIA".
    yield "accelerator", stored.accelerator_key, now.accelerator_key
    links = stored.link_of(world_size), now.link_of(world_size)
    if links[0] and links[1]:
        yield "interconnect", links[0], links[1]
    for name, before, after, unit in (
        ("memory", stored.gpu_memory, now.gpu_memory, 2**30),
        ("power limit", stored.power_limit_w, now.power_limit_w, 1),
    ):
        if before and after and abs(before / after - 1) > _SAME:
            suffix = "W" if unit == 1 else "GiB"
            yield name, f"{before / unit:.0f} {suffix}", f"{after / unit:.0f} {suffix}"
