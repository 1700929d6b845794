"""A cable between two hosts with a bandwidth and a delay, exactly, whatever the kernel has.

The hosts' ends are TUN devices; two processes of real-time priority pass packets between them. The
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
            _ip(name, "link", "set", "cable", "mtu", str(_MTU))
            _plug(name, address)
            # After each pause of a connection it would find its speed anew.
            setting = "net.ipv4.tcp_slow_start_after_idle=0"
            _run("ip", "netns", "exec", name, "sysctl", "-qw", setting)
        for core in range(2):  # each rank's core has as much of it
            one = (*(ends if core == 0 else reversed(ends)), cable, core)
            relay = multiprocessing.get_context("fork").Process(target=_relay, args=one)
            relay.start()
            stack.callback(relay.join)
            stack.callback(relay.kill)
        yield
    for name, address in zip(hosts.names, hosts.addresses, strict=True):
        _ip(name, "link", "set", "spare", "name", "cable")
        _plug(name, address)


def _plug(name: str, address: str) -> None:
    _ip(name, "address", "add", f"{address}/24", "dev", "cable")
    _ip(name, "link", "set", "cable", "up")


def _tun(name: str) -> int:
    """Create the device "cable" of a host; return what reads and writes its packets."""
    end = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(end, _TUNSETIFF, struct.pack("16sH", name.encode(), _IFF_TUN | _IFF_NO_PI))
    _run("ip", "link", "set", name, "netns", name, "name", "cable")
    return end


def _relay(source: int, target: int, cable: Cable, core: int) -> None:
    """Pass packets of one end to the other, one after the other at the cable's rate."""
    os.sched_setaffinity(0, {core})
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    free_at = 0.0
    held = collections.deque[tuple[float, bytes]]()
    while True:
        left_s = max(held[0][0] - time.monotonic(), 0) if held else None
        if select.select([source], [], [], left_s)[0]:
            with contextlib.suppress(BlockingIOError):
                while True:
                    packet = os.read(source, 2 * _MTU)
                    free_at = max(free_at, time.monotonic()) + len(packet) / cable.bytes_per_s
                    held.append((free_at + cable.delay_s, packet))
        while held and held[0][0] <= time.monotonic():
            os.write(target, held.popleft()[1])


def _ip(host: str, *command: str) -> None:
    _run("ip", "-n", host, *command)


def _run(*command: str) -> None:
    subprocess.run(command, check=True)
