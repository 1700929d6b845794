"""Network interfaces and ports for RDMA: their counters, links and addresses."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import socket
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import psutil

from ddp_perf.core.case import Case
from ddp_perf.core.launch import NetworkUse, RdmaUse
from ddp_perf.system.host.kernel_files import number_of, text_of

_INTERFACES = Path("/sys/class/net")
_RDMA_DEVICES = Path("/sys/class/infiniband")
_BYTES_OF_A_COUNT = 4  # of port_xmit_data and port_rcv_data (InfiniBand, PortCounters)
_ELSEWHERE = "192.0.2.1"  # on no network (RFC 5737), so its route is the default one


class RdmaCounters(NamedTuple):
    """The counters of all active ports for RDMA together, since they were last cleared."""

    ports: tuple[Path, ...]
    use: RdmaUse


def group_interface(case: Case) -> str | None:
    """Return the interface that the process group of the case uses, or None for one rank.

    It is what the variable of the backend names. NCCL accepts a prefix, and both accept several
    names; then no interface has that name, and it has no counters. Between nodes NCCL chooses by
    itself: the interface on the route to the first one, unless there is a network for RDMA, whose
    traffic no interface counts.
    """
    variable = "NCCL_SOCKET_IFNAME" if case.tier == "gpu" else "GLOO_SOCKET_IFNAME"
    name = os.environ.get(variable, "").removeprefix("=")
    if case.run_ranks == 1:
        return None
    meeting = os.environ.get("MASTER_ADDR")
    if not name and case.nodes > 1 and meeting is not None and rdma_networks() is None:
        return interface_between_nodes(meeting)
    return name or None


def rdma_networks() -> str | None:
    """Return the active ports for RDMA, as ``8 x InfiniBand 400 Gb/sec (4X NDR)``; None: none."""
    return _kinds(_active_ports())


def read_rdma() -> RdmaCounters | None:
    """Return the counters of all active ports for RDMA; None: no port, or one has no counters."""
    ports = tuple(_active_ports())
    kinds = _kinds(ports)
    sent, received, waited = (
        _sum(number_of(port / "counters" / name) for port, _, _ in ports)
        for name in ("port_xmit_data", "port_rcv_data", "port_xmit_wait")
    )
    if kinds is None or sent is None or received is None:
        return None
    use = RdmaUse(
        ports=kinds,
        sent=_BYTES_OF_A_COUNT * sent,
        received=_BYTES_OF_A_COUNT * received,
        waited=waited,
        speed=_speed(rate for _, _, rate in ports),
    )
    return RdmaCounters(tuple(port for port, _, _ in ports), use)


def _active_ports() -> Iterator[tuple[Path, str, str]]:
    """Yield the directory, the link layer and the rate of each active port for RDMA."""
    for port in sorted(_RDMA_DEVICES.glob("*/ports/*")):
        state, layer, rate = (text_of(port / name) for name in ("state", "link_layer", "rate"))
        if state and layer and rate and state.endswith("ACTIVE"):
            yield port, layer, rate


def _kinds(ports: Iterable[tuple[Path, str, str]]) -> str | None:
    found = Counter(f"{layer} {rate}" for _, layer, rate in ports)
    return ", ".join(f"{count} x {port}" for port, count in sorted(found.items())) or None


def _speed(rates: Iterable[str]) -> float | None:
    """Return the sum of rates such as ``400 Gb/sec (4X NDR)`` in bytes/s; None: unknown."""
    try:
        return sum(float(rate.partition(" Gb/sec")[0]) for rate in rates) * 1e9 / 8 or None
    except ValueError:
        return None


def _sum(counts: Iterable[int | None]) -> int | None:
    """Return the sum, or None if one of the counts is unknown."""
    known = list(counts)
    return None if None in known else sum(filter(None, known))


def read_interface(name: str) -> NetworkUse | None:
    """Return the bytes of an interface since it exists, or None if there is no such interface.

    Over ``lo`` each byte is sent and received, and the link has no speed.
    """
    device = _INTERFACES / name
    sent, received = (number_of(device / f"statistics/{way}_bytes") for way in ("tx", "rx"))
    if sent is None or received is None:
        return None
    mbits = number_of(device / "speed") or -1  # -1: the driver does not know it
    speed = mbits * 1e6 / 8 if mbits > 0 else None
    return NetworkUse(interface=name, sent=sent, received=received, speed=speed)


def address_towards(host: str) -> str | None:
    """Return this host's own address on the route to ``host``, or None if there is no route.

    Nothing is sent. ``host`` may be this host itself.
    """
    with contextlib.suppress(OSError):
        for family, kind, protocol, _, address in socket.getaddrinfo(
            host, 9, type=socket.SOCK_DGRAM
        ):
            with contextlib.suppress(OSError), socket.socket(family, kind, protocol) as one:
                one.connect(address)
                return str(one.getsockname()[0])
    return None


def interface_towards(host: str) -> str | None:
    """Return the interface that has the address of the route to ``host``; None: no route."""
    address = address_towards(host)
    if address is None:
        return None
    for name, own in psutil.net_if_addrs().items():
        if address in {one.address.partition("%")[0] for one in own}:  # fe80::1%eth0
            return name
    return "lo" if address.startswith("127.") else None


def interface_between_nodes(host: str) -> str | None:
    """Return the interface on the route to ``host``, the first of several nodes.

    A host may have its own name at 127.0.1.1, where no other node is: then it is the interface of
    the default route. Only a host that is given as loopback has all nodes on this machine.
    """
    found = interface_towards(host)
    is_hidden = found == "lo" and not is_loopback(host)
    return interface_towards(_ELSEWHERE) if is_hidden else found


def is_loopback(host: str) -> bool:
    """Return whether a host is given as loopback: by that address, or as ``localhost``."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:  # another name
        return False
