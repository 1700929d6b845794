"""The places where ranks can run on this machine: each transport, or what stands in its way."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import msgspec
import pytest

from ddp_perf.launch.engine import Engine
from ddp_perf.launch.engines.hosts import Hosts
from ddp_perf.launch.engines.machine import ThisMachine, UserCommand
from ddp_perf.launch.engines.slurm import SlurmEngine
from tests.clusters import TEMPLATE, EngineOnThisMachine, PlayedCluster
from tests.slurm_cluster import slurm_cluster, slurm_obstacle
from tests.system.two_hosts import obstacle, two_hosts


@contextlib.contextmanager
def this_machine() -> Iterator[Engine]:
    yield ThisMachine()


@contextlib.contextmanager
def command() -> Iterator[Engine]:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    yield UserCommand("sh -c 'exec {command}'", environ={**os.environ, "PATH": path})


@contextlib.contextmanager
def shells() -> Iterator[Engine]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        endpoint = f"127.0.0.1:{free.getsockname()[1]}"
    yield Hosts(["first", "second"], node_shell="env NODE={node} sh -c", endpoint=endpoint)


@contextlib.contextmanager
def namespaces() -> Iterator[Engine]:
    with two_hosts() as hosts:
        endpoint = f"{hosts.addresses[0]}:29400"
        yield Hosts(hosts.names, node_shell=hosts.shell, endpoint=endpoint)


@contextlib.contextmanager
def slurm() -> Iterator[Engine]:
    with tempfile.TemporaryDirectory() as directory, slurm_cluster(Path(directory)):
        yield SlurmEngine(nodes=2, gpus_per_node=0, on_wait=print)


@contextlib.contextmanager
def pods() -> Iterator[Engine]:
    with tempfile.TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patch:
        PlayedCluster(Path(directory), patch)
        yield EngineOnThisMachine(TEMPLATE, nodes=2, on_warn=print)


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """A transport, and the ranks that it starts."""

    name: str
    engine: Callable[[], AbstractContextManager[Engine]]
    ranks: int = 2
    runs_script: bool = False
    has_groups: bool = True  # False: its ranks do not see the memory groups of this machine
    obstacle: Callable[[], str | None] = lambda: None


SETTINGS = (
    Setting(name="on this machine", engine=this_machine),
    Setting(name="on this machine", engine=this_machine, ranks=4),
    Setting(name="in a script", engine=this_machine, runs_script=True),
    Setting(name="in a command", engine=command),
    Setting(name="on two hosts", engine=shells),
    Setting(
        name="on two hosts with a network", engine=namespaces, has_groups=False, obstacle=obstacle
    ),
    Setting(name="with Slurm", engine=slurm, obstacle=slurm_obstacle),
    Setting(name="in played pods", engine=pods),
)
