"""The rules by which figures of two environments may be compared, and their differences."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from ddp_perf.core.baseline import Baseline, CaseBaseline
from ddp_perf.core.environment import Environment
from ddp_perf.render.units import change_text, field_changes

_SAME = 0.05  # memory and power limits that differ by less belong to one class
_SOFTWARE = ("torch", "cuda", "cudnn", "nccl", "driver", "blas")
# A change of these is shown beside a verdict and allowed: it is often the tested change.
_INFORMATIVE = (
    "driver",
    "cuda",
    "nccl",
    "torch",
    "cudnn",
    "blas",
    "python",
    "os",
    "host",
    "hosts",
    "alike_nodes",
    "sm_clock_mhz",
    "ecc",
    "persistence",
    "networks",
)


def cases_elsewhere(relatives: Sequence[Baseline]) -> dict[str, str]:
    """Return, by case id, the nearest relative that has sessions of it; they come nearest first."""
    return {
        case_id: other.accelerator
        for other in reversed(relatives)  # the nearest one replaces the others
        for case_id in other.cases
    }


def other_machine(
    stored: CaseBaseline, now: Environment, *, world_size: int, nodes: int = 1
) -> str | None:
    """Describe the first stored session of another machine, or return None if there is none.

    One such session is enough: figures of two machines have no common level.
    """
    for session in stored.sessions:
        if found := mismatches(session.environment, now, world_size=world_size, nodes=nodes):
            return f"the session of {session.date[:10]} is of another machine: {'; '.join(found)}"
    return None


def mismatches(
    stored: Environment, now: Environment, *, world_size: int, nodes: int = 1
) -> list[str]:
    """Return each field that makes the machines incomparable for a case, with both values.

    A value that either environment lacks is not compared.
    """
    return [
        f"{name} {before}, here {after}"
        for name, before, after in checked_conditions(stored, now, world_size, nodes)
        if before != after
    ]


def same_software(stored: Environment, now: Environment) -> bool:
    """Return whether both environments have the same software, so that the control applies.

    If an upgrade slows the control's matrix product, the machine did not get slower.
    """
    return software(stored) == software(now)


def software(environment: Environment) -> tuple[str | None, ...]:
    """Return the versions of the software that the control depends on."""
    return tuple(getattr(environment, name) for name in _SOFTWARE)


def changes(stored: Environment, now: Environment) -> list[str]:
    """Return the other differences, as ``torch 2.12.0 → 2.13.0``."""
    variables = sorted(stored.variables.keys() | now.variables.keys())
    packages = sorted((stored.packages.keys() & now.packages.keys()) - {"torch"})  # has a field
    names = (*_INFORMATIVE, *variables, *(f"package {name}" for name in packages))
    differences = environment_differences(stored, now, names)
    for ranks in sorted(stored.transports.keys() & now.transports.keys()):
        before, after = stored.transports[ranks], now.transports[ranks]
        if before != after:
            differences.append(change_text(f"NCCL's transport of {ranks}", before, after))
    return differences


def environment_differences(
    before: Environment, after: Environment, names: Iterable[str]
) -> list[str]:
    """Return which of these conditions differ, each with both values."""
    return field_changes(before.conditions(), after.conditions(), names)


def checked_conditions(
    stored: Environment, now: Environment, world_size: int, nodes: int = 1
) -> Iterator[tuple[str, str, str]]:
    """Yield name and both values of each checked field that both environments have.

    Nodes with GPUs of one type share their baselines, and so do the hosts of a pool. Other CPU
    hosts are other machines, as one CPU host is.
    """
    # Not by name: drivers before 2021 write it without "NVIDIA".
    yield "accelerator", stored.accelerator_key, now.accelerator_key
    here = world_size // nodes  # ranks of a node
    for name, before, after in (
        ("interconnect", stored.link_of(here), now.link_of(here)),
        ("peer access", stored.peer_access_of(here), now.peer_access_of(here)),
        ("PCIe under load", stored.pcie_of(here), now.pcie_of(here)),
    ):
        if before and after:
            yield name, before, after
    are_alike = stored.cuda is not None or stored.pool is not None
    if nodes > 1 and not are_alike and stored.hosts and now.hosts:
        yield "hosts", stored.hosts, now.hosts
    for name, old, new, unit in (
        ("memory", stored.gpu_memory, now.gpu_memory, 2**30),
        ("power limit", stored.power_limit_w, now.power_limit_w, 1),
    ):
        if old and new and abs(old / new - 1) > _SAME:
            suffix = "W" if unit == 1 else "GiB"
            yield name, f"{old / unit:.0f} {suffix}", f"{new / unit:.0f} {suffix}"
