"""The engine of hosts that a shell reaches, as ssh does."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from ddp_perf.core.case import Tier
from ddp_perf.launch.engine import SERVER, Transport, forwarded_variables
from ddp_perf.launch.interpreter import package_path
from ddp_perf.system.variables import LIBRARY_PATH


class Hosts:
    """Servers on hosts, each started by a shell there.

    ``node_shell`` is a command with ``{node}`` in the place of the host's name. It gets the
    command for the host as its last argument, as ssh does. ``endpoint`` is host:port of the first
    host, as the others reach it.
    """

    def __init__(self, hosts: Sequence[str], *, node_shell: str, endpoint: str) -> None:
        self.environ: Mapping[str, str] = dict(os.environ)
        self._hosts = tuple(hosts)
        self._node_shell = node_shell
        self._endpoint = endpoint

    @property
    def nodes(self) -> tuple[str, ...]:
        return self._hosts

    def transport(self, node: str, tier: Tier, scratch: Path) -> Transport:
        there = {"PYTHONPATH": package_path(os.environ)}
        if LIBRARY_PATH in os.environ:  # a shell there may not set it
            there[LIBRARY_PATH] = os.environ[LIBRARY_PATH]
        assignments = [f"{name}={value}" for name, value in there.items()]
        server = shlex.join(["env", *assignments, sys.executable, *SERVER])
        shell = shlex.split(self._node_shell.format(node=shlex.quote(node)))
        return Transport(
            who=f"the server on {node} ({shell[0]} …)",
            words=[*shell, f"cd {shlex.quote(os.getcwd())} && exec {server}"],
            environ=self.environ,
            variables=forwarded_variables(tier),
            remedy=f"install this version of ddp_perf on {node}, at the path that it has here",
        )

    def endpoint(self, node: str) -> str:
        return self._endpoint

    def loss(self, node: str) -> str | None:
        return None  # its shell has ended, or printed why

    def close(self) -> None:
        """Keep everything: nothing is held between launches."""
