"""Two hosts on one machine: network namespaces, joined by a link of a limited rate."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator

import msgspec

MBIT = 1e6 / 8  # bytes/s
_BURST_S = 2e-3  # of the rate, which pass at once; more than a packet
_MTU = 9000
_SUBNET = "10.213.7"  # of the link alone: no namespace has another route


class TwoHosts(msgspec.Struct, frozen=True, kw_only=True):
    """The names of two hosts, and the link between them."""

    names: tuple[str, str]

    @property
    def addresses(self) -> tuple[str, str]:
        return f"{_SUBNET}.1", f"{_SUBNET}.2"

    @property
    def shell(self) -> str:
        """The command that runs a command line on a host, as ``ssh {node}`` does elsewhere."""
        named = 'hostname {node} && exec sh -c "$1"'
        return f"ip netns exec {{node}} unshare --uts sh -c '{named}' sh"

    def limit(self, bytes_per_s: float, *, within: float | None = None) -> None:
        """Limit the cable to this rate in each direction, and each loopback to ``within``."""
        for name in self.names:
            _limit(name, "cable", bytes_per_s)
            if within is not None:
                _limit(name, "lo", within)

    def processes(self) -> list[int]:
        """Return the ids of the processes that run on either host."""
        found = [_run("ip", "netns", "pids", name).split() for name in self.names]
        return [int(pid) for pids in found for pid in pids]


def obstacle() -> str | None:
    """Return why there cannot be two hosts here, or None if there can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if missing := [name for name in ("ip", "tc", "unshare") if shutil.which(name) is None]:
        return f"{' and '.join(missing)} (iproute2, util-linux) is missing"
    with contextlib.suppress(subprocess.CalledProcessError), two_hosts() as hosts:
        hosts.limit(MBIT)
        return None
    return "this kernel or container refuses network namespaces, veth pairs or tbf"


@contextlib.contextmanager
def two_hosts() -> Iterator[TwoHosts]:
    """Create the hosts and their link, and remove them with all their processes."""
    first, second = names = f"ddp{os.getpid()}a", f"ddp{os.getpid()}b"
    hosts = TwoHosts(names=names)
    try:
        for name in names:
            _run("ip", "netns", "add", name)
        ends = ["name", "cable", "netns", first, "type", "veth"]
        ends += ["peer", "name", "cable", "netns", second]
        _run("ip", "link", "add", *ends)
        for name, address in zip(names, hosts.addresses, strict=True):
            _run("ip", "-n", name, "address", "add", f"{address}/24", "dev", "cable")
            for interface in ("cable", "lo"):
                _run("ip", "-n", name, "link", "set", interface, "mtu", str(_MTU), "up")
        yield hosts
    finally:
        for name in names:
            with contextlib.suppress(subprocess.CalledProcessError):
                pids = _run("ip", "netns", "pids", name).split()
                if pids:
                    subprocess.run(["kill", "-9", *pids], check=False)
                _run("ip", "netns", "delete", name)


def _limit(host: str, interface: str, bytes_per_s: float) -> None:
    burst = max(int(bytes_per_s * _BURST_S), 2 * _MTU)
    limit = ["rate", f"{int(8 * bytes_per_s)}bit", "burst", str(burst), "latency", "500ms"]
    _run("tc", "-n", host, "qdisc", "replace", "dev", interface, "root", "tbf", *limit)


def _run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout
