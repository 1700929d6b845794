"""A launcher with forkservers that have imported torch: ranks start in tens of milliseconds."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from ddp_perf.core.case import Case
from ddp_perf.core.launch import LaunchFailure, LaunchRequest, LaunchResult
from ddp_perf.core.subject import PACKAGES
from ddp_perf.core.work import CountRequest, StepWork
from ddp_perf.launch.environment import check_device_order, package_alone, package_directory
from ddp_perf.launch.launcher import Runtime
from ddp_perf.launch.scratch import ScratchDirectory
from ddp_perf.launch.server_process import ServerLostError, ServerProcess
from ddp_perf.system.host.launch_platform import check_can_launch


class ForkserverLauncher:
    """A launcher that keeps one server process per environment and per preloaded workload.

    Torch and OpenMP read the environment when they are imported, so each environment needs its
    own server. A workload that takes long to import has its own server too: its ranks do not
    import it again, and the ranks of other workloads do not contain it.

    ``interpreter`` and ``environ`` are those of the servers, and ``package`` is the directory from
    which they import ddp_perf. This process never imports torch, so its own may differ. Ranks run
    in ``working_directory``; None: in that of this process. Use the launcher from the main thread
    (see ``ServerProcess``).
    """

    def __init__(
        self,
        *,
        interpreter: str = sys.executable,
        environ: Mapping[str, str] | None = None,
        package: Path | None = None,
        working_directory: Path | None = None,
    ) -> None:
        self._interpreter = interpreter
        self._environ = dict(os.environ if environ is None else environ)
        self._package = package_directory() if package is None else package
        self._working_directory = working_directory
        self._servers: dict[_ServerKey, ServerProcess] = {}
        self._scratch: ScratchDirectory | None = None  # made for the first server

    def nodes(self, case: Case) -> tuple[str, ...]:
        return ()

    def runtime(self, case: Case | None = None) -> Runtime:
        return self._server(case).runtime

    def launch(self, request: LaunchRequest) -> LaunchResult | LaunchFailure:
        server = self._server(request.case)
        try:
            return server.launch(request)
        except ServerLostError as lost:
            return self._lost(server, lost, request.case, request.round)

    def count(self, request: CountRequest) -> StepWork | LaunchFailure:
        """Count a step of one rank, on a CPU. Nothing is timed, so counts may run side by side.

        Raises LaunchError if ranks cannot be started.
        """
        case = msgspec.structs.replace(request.case, tier="cpu")
        server = self._server(case)
        try:
            return server.count(request)
        except ServerLostError as lost:
            return self._lost(server, lost, case, round_number=0)

    def _lost(
        self, server: ServerProcess, lost: ServerLostError, case: Case, round_number: int
    ) -> LaunchFailure:
        """Return the failure of a server that has ended: the next request starts another."""
        failure = LaunchFailure(
            case_id=case.id,
            round=round_number,
            kind="server",
            rank=None,
            detail=str(lost),
            output=server.output_tail(),
        )
        del self._servers[_server_key(case)]
        server.close()
        shutil.rmtree(server.directory, ignore_errors=True)
        return failure

    def close(self) -> None:
        for server in self._servers.values():
            server.close()
        self._servers.clear()
        if self._scratch is not None:
            self._scratch.close()
            self._scratch = None

    def _server(self, case: Case | None) -> ServerProcess:
        check_can_launch()
        key = _server_key(case)
        environ = {**self._environ, **dict(key.env)}
        if case is not None and case.tier == "gpu":
            check_device_order(environ)
        if key not in self._servers:
            self._scratch = self._scratch or ScratchDirectory()
            directory = Path(tempfile.mkdtemp(prefix="server-", dir=self._scratch.path))
            server = ServerProcess(
                self._interpreter,
                environ,
                self._importable(self._scratch.path),
                directory,
                key.preloaded,
                working_directory=self._working_directory,
            )
            self._servers[key] = server
        return self._servers[key]

    def _importable(self, scratch: Path) -> Path:
        """Return the directory from which the interpreter imports ddp_perf.

        Another interpreter must not find what is installed beside it for this one, as torch.
        """
        if self._interpreter == sys.executable:
            return self._package
        return package_alone(self._package, scratch)


class _ServerKey(NamedTuple):
    env: frozenset[tuple[str, str]]
    preloaded: tuple[str, ...]  # workloads of the package that are imported before the fork


def _server_key(case: Case | None) -> _ServerKey:
    if case is None:
        return _ServerKey(frozenset(), ())
    preloaded = (case.workload,) if case.workload in PACKAGES else ()
    return _ServerKey(frozenset(case.env.items()), preloaded)
