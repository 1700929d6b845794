"""The engine torchrun: node processes on this machine, or on hosts that a shell reaches."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from multiprocessing.connection import wait
from typing import IO

from ddp_perf.errors import LaunchError
from ddp_perf.launch.launcher import package_path
from ddp_perf.launch.nodes.engine import (
    END_WITH_STDIN,
    ENDPOINT_VARIABLE,
    GOODBYE_S,
    GRACE_S,
    NodeEnd,
)
from ddp_perf.system.host.host import host_name
from ddp_perf.system.variables import LIBRARY_PATH

_TICK_S = 1.0  # a Ctrl-C that comes just before a wait is noticed after it


class TorchrunEngine:
    """An engine that starts node processes by a shell on each host, or one on this machine.

    ``node_shell`` is a command with ``{node}`` in the place of the host's name. It gets the
    command for the host as its last argument, as ssh does.
    """

    node_variable = "DDP_PERF_NODE"

    def __init__(
        self, *, hosts: Sequence[str] = (), node_shell: str = "", endpoint: str = ""
    ) -> None:
        self._hosts = tuple(hosts)
        self._node_shell = node_shell
        self._endpoint = endpoint

    @property
    def nodes(self) -> tuple[str, ...]:
        return self._hosts

    def run(
        self,
        command: Sequence[str],
        *,
        nodes: int,
        only: str | None,
        deadline_s: float,
    ) -> tuple[NodeEnd, ...]:
        names = (only,) if only is not None else self._names(nodes)
        running: list[_NodeProcess] = []
        try:
            for number, name in enumerate(names):
                running.append(self._start(name, number, command))
            _await_ends(running, deadline_s)
        finally:
            for node in running:
                node.hang_up()
            last = time.monotonic() + GOODBYE_S
            ends = tuple(node.end(last) for node in running)
        return ends

    def _names(self, nodes: int) -> tuple[str, ...]:
        known = self._hosts or (host_name(),)
        if nodes > len(known):
            raise LaunchError(
                f"the case needs {nodes} nodes, and there is {', '.join(known)}; name them in"
                " hosts of the cluster file"
            )
        return known[:nodes]

    def close(self) -> None:
        """Keep everything: nothing is held between launches."""

    def _start(self, name: str, number: int, command: Sequence[str]) -> _NodeProcess:
        variables = {
            "PYTHONPATH": package_path(os.environ),
            self.node_variable: str(number),
            ENDPOINT_VARIABLE: self._endpoint,
        }
        command = [*command, END_WITH_STDIN]
        if not self._hosts:
            return _NodeProcess(name, command, {**os.environ, **variables})
        if LIBRARY_PATH in os.environ:  # a shell there may not set it
            variables[LIBRARY_PATH] = os.environ[LIBRARY_PATH]
        assignments = [f"{variable}={value}" for variable, value in variables.items()]
        there = (
            f"cd {shlex.quote(os.getcwd())} && exec {shlex.join(['env', *assignments, *command])}"
        )
        shell = shlex.split(self._node_shell.format(node=shlex.quote(name)))
        return _NodeProcess(name, [*shell, there], os.environ)


class _NodeProcess:
    """The node process of one node, or the shell that runs it there."""

    def __init__(self, name: str, command: Sequence[str], environ: Mapping[str, str]) -> None:
        self._name = name
        self._ended_for: str | None = None
        try:
            with contextlib.ExitStack() as held:
                self._output: IO[bytes] = held.enter_context(tempfile.TemporaryFile())
                self._process = subprocess.Popen(
                    command,
                    env=environ,
                    stdin=subprocess.PIPE,
                    stdout=self._output,
                    stderr=self._output,
                    start_new_session=True,  # the driver handles Ctrl-C
                )
                held.callback(self._kill)
                self.sentinel = os.pidfd_open(self._process.pid)
                held.pop_all()  # ``end`` closes them
        except OSError as error:
            raise LaunchError(
                f"node {name}: {command[0]} cannot be started: {error.strerror}"
            ) from None

    @property
    def exit_code(self) -> int | None:
        return self._process.poll()

    def give_up(self, why: str) -> None:
        """Let it end, because of ``why``, unless it has ended."""
        if self.exit_code is None and self._ended_for is None:
            self._ended_for = why
            self.hang_up()

    def hang_up(self) -> None:
        """Close its standard input: it ends its ranks, and itself."""
        if self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()

    def end(self, last: float) -> NodeEnd:
        """Wait for its end until ``last``, after it was hung up, or kill it; return its end."""
        try:
            code = self._process.wait(max(last - time.monotonic(), 0))
            problem = self._ended_for or (f"exit code {code}" if code else None)
        except subprocess.TimeoutExpired:
            self._kill()
            killed = f"it did not end in {GOODBYE_S:.0f} s, and was killed"
            problem = f"{self._ended_for}; {killed}" if self._ended_for else killed
        os.close(self.sentinel)
        with self._output:
            self._output.seek(0)
            text = self._output.read().decode("utf-8", "replace")
        ended = self._ended_for is not None
        return NodeEnd(node=self._name, output=text, failure=problem, was_ended=ended)

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


def _await_ends(nodes: Sequence[_NodeProcess], deadline_s: float) -> None:
    """Wait until all have ended, or one has failed a while ago, or the deadline is over."""
    deadline = time.monotonic() + deadline_s
    failed = False
    while running := [node for node in nodes if node.exit_code is None]:
        left = deadline - time.monotonic()
        if left <= 0:
            why = "another node failed" if failed else f"no end in {deadline_s:.0f} s"
            for node in running:
                node.give_up(why)
            return
        wait([node.sentinel for node in running], min(left, _TICK_S))
        if not failed and any(node.exit_code for node in nodes):
            failed = True
            deadline = min(deadline, time.monotonic() + GRACE_S)
