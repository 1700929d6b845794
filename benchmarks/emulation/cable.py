"""A cable between two hosts with a bandwidth and a delay, exactly, whatever the kernel has.

The hosts' ends are TUN devices; a process of real-time priority passes packets between them. The
kernel's tbf lets the first packets pass at once, and not every kernel has netem.
"""

from __future__ import annotations

import collections
import contextlib
import fcntl
import multiprocessing
import os
import select
import struct
import subprocess
import time
from collections.abc import Iterator
from typing import NamedTuple

from tests.system.two_hosts import TwoHosts

_TUNSETIFF, _IFF_TUN, _IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
_MTU = 60_000  # bytes: few packets, since each costs a core some 10 µs


class Cable(NamedTuple):
    """A bandwidth in each direction, and the time until a packet arrives that has been sent."""

    bytes_per_s: float
    delay_s: float


@contextlib.contextmanager
def joined_by(hosts: TwoHosts, cable: Cable) -> Iterator[None]:
    """Join the hosts by this cable instead of their own, while the context lasts."""
    with contextlib.ExitStack() as stack:
        ends = []
        for name, address in zip(hosts.names, hosts.addresses, strict=True):
            _ip(name, "link", "set", "cable", "down", "name", "spare")
            _ip(name, "address", "flush", "dev", "spare")
            ends.append(_tun(name))
            stack.callback(os.close, ends[-1])  # and so the device is gone
            _plug(name, address)
            # After each pause of a connection it would find its speed anew.
            setting = "net.ipv4.tcp_slow_start_after_idle=0"
            _run("ip", "netns", "exec", name, "sysctl", "-qw", setting)
        relay = multiprocessing.get_context("fork").Process(target=_relay, args=(ends, cable))
        relay.start()
        stack.callback(relay.join)
        stack.callback(relay.kill)
        yield
    for name, address in zip(hosts.names, hosts.addresses, strict=True):
        _ip(name, "link", "set", "spare", "name", "cable")
        _plug(name, address)


def _plug(name: str, address: str) -> None:
    _ip(name, "address", "add", f"{address}/24", "dev", "cable")
    _ip(name, "link", "set", "cable", "mtu", str(_MTU), "up")


def _tun(name: str) -> int:
    """Create the device "cable" of a host; return what reads and writes its packets."""
    end = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(end, _TUNSETIFF, struct.pack("16sH", name.encode(), _IFF_TUN | _IFF_NO_PI))
    _run("ip", "link", "set", name, "netns", name, "name", "cable")
    return end


def _relay(ends: list[int], cable: Cable) -> None:
    """Pass packets of each end to the other, one after the other at the cable's rate."""
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    free_at = dict.fromkeys(ends, 0.0)
    held = {end: collections.deque[tuple[float, bytes]]() for end in ends}  # by receiver
    while True:
        due = min((packets[0][0] for packets in held.values() if packets), default=None)
        left_s = None if due is None else max(due - time.monotonic(), 0)
        for end in select.select(ends, [], [], left_s)[0]:
            with contextlib.suppress(BlockingIOError):
                while True:
                    packet = os.read(end, 2 * _MTU)
                    sent = max(free_at[end], time.monotonic()) + len(packet) / cable.bytes_per_s
                    free_at[end] = sent
                    held[sum(ends) - end].append((sent + cable.delay_s, packet))
        for end, packets in held.items():
            while packets and packets[0][0] <= time.monotonic():
                os.write(end, packets.popleft()[1])


def _ip(host: str, *command: str) -> None:
    _run("ip", "-n", host, *command)


def _run(*command: str) -> None:
    subprocess.run(command, check=True)
