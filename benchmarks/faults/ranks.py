"""Faults of ranks: at each moment, with two and four ranks, over each transport here."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from ddp_perf.launch.engine import Engine
from ddp_perf.launch.engines.hosts import Hosts
from ddp_perf.launch.engines.machine import ThisMachine, UserCommand
from tests.faults.matrix import Tried
from tests.faults.ranks import FAULTS, MOMENTS, place, play, small_group_obstacle


def trials(*, trials: int, seed: int) -> Iterator[Tried]:
    """Yield a trial of each fault, at each moment, in each place: none of them is random."""
    no_group = small_group_obstacle()
    faults = [one for one in FAULTS if one.name != "out-of-memory" or no_group is None]
    if no_group is not None:
        print(f"  not tried: a rank takes too much memory: {no_group}")
    with _own_temporary():
        for name, engine, ranks in _places():
            with place(name, engine, ranks=ranks) as here:
                for fault in faults:
                    for moment in MOMENTS:
                        yield play(fault, moment, here)


def _places() -> Iterator[tuple[str, Engine, int]]:
    yield "on this machine", ThisMachine(), 2
    yield "on this machine", ThisMachine(), 4
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    yield (
        "in a command",
        UserCommand("sh -c 'exec {command}'", environ={**os.environ, "PATH": path}),
        2,
    )
    with socket.create_server(("127.0.0.1", 0)) as free:
        endpoint = f"127.0.0.1:{free.getsockname()[1]}"
    yield (
        "on two hosts",
        Hosts(["first", "second"], node_shell="env NODE={node} sh -c", endpoint=endpoint),
        2,
    )


@contextlib.contextmanager
def _own_temporary() -> Iterator[None]:
    """Have the temporary files of the launches in a directory of their own."""
    was = tempfile.tempdir, os.environ.get("TMPDIR")
    with tempfile.TemporaryDirectory() as temporary:
        tempfile.tempdir = os.environ["TMPDIR"] = temporary
        try:
            yield
        finally:
            tempfile.tempdir = was[0]
            if was[1] is None:
                del os.environ["TMPDIR"]
            else:
                os.environ["TMPDIR"] = was[1]
