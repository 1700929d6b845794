"""Warnings of a machine that is slower than it could be, whatever the verdicts: its links."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ddp_perf.core.environment import Environment
from ddp_perf.core.gpu import NodeHardware
from ddp_perf.core.measurement import Measurement
from ddp_perf.render.units import counted

_STATES = {
    "power_limit_w": "power limit (W)",
    "sm_clock_mhz": "application clock (MHz)",
    "gpu_memory": "memory (bytes)",
    "ecc": "ECC",
    "links": "links",
    "peer_access": "peer access",
    "networks": "networks for RDMA",
}


def machine_warnings(
    measurements: Iterable[Measurement], environment: Environment
) -> tuple[str, ...]:
    """Return what slows the links of these launches, and in what their nodes differ."""
    found: dict[str, None] = {}
    for measurement in measurements:
        found |= dict.fromkeys(_transport_warnings(measurement, environment))
        for launch in measurement.launches:
            found |= dict.fromkeys(_differences(launch.node_hardware, launch.hosts))
    return tuple(found)


def _transport_warnings(measurement: Measurement, environment: Environment) -> Iterator[str]:
    case = measurement.case
    used = {name for launch in measurement.launches for name in launch.transports}
    if case.nodes > 1 and any(name.startswith("NET/Socket") for name in used):
        seen = environment.networks
        why = f"although the nodes have {seen}" if seen else "and no network for RDMA is visible"
        yield (
            f"{case.ranks_text}: NCCL sends between the nodes over TCP sockets (NET/Socket), {why};"
            " a container needs the devices in /dev/infiniband and IPC_LOCK, EFA its plugin"
        )
    access = environment.peer_access_of(case.ranks_per_node)
    if access == "yes" and any(name.startswith("SHM") for name in used):
        yield (
            f"{case.ranks_text}: NCCL sends through the host's memory (SHM), although the GPUs"
            " can access each other's; see NCCL_P2P_DISABLE and NCCL_P2P_LEVEL"
        )


def _differences(states: tuple[NodeHardware, ...], hosts: tuple[str, ...]) -> Iterator[str]:
    for name, words in _STATES.items():
        each = [getattr(state, name) for state in states]
        if len(set(each) - {None}) > 1:
            values = ", ".join(f"{host} {one}" for host, one in zip(hosts, each, strict=False))
            nodes = counted(len(states), "node")
            yield f"the {nodes} differ in {words} ({values}): the slowest decides"
