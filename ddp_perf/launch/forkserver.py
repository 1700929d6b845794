"""A launcher with forkservers that have imported torch: ranks start in tens of milliseconds."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from ddp_perf.core.case import Case
from ddp_perf.core.launch import LaunchFailure, LaunchRequest, LaunchResult
from ddp_perf.core.models import PACKAGES
from ddp_perf.errors import LaunchError
from ddp_perf.launch.launcher import Runtime
from ddp_perf.launch.scratch import ScratchDirectory
from ddp_perf.launch.server_process import ServerLostError, ServerProcess
from ddp_perf.system.host.launch_platform import check_can_launch


class ForkserverLauncher:
    """A launcher that keeps one server process per environment and per preloaded workload.

    Torch and OpenMP read the environment when they are imported, so each environment needs its
    own server. A workload that takes long to import has its own server too: its ranks do not
    import it again, and the ranks of other workloads do not contain it.

    ``interpreter`` and ``environ`` are those of the servers. This process never imports torch, so
    its own may differ. Use it from the main thread (see ``ServerProcess``).
    """

    def __init__(
        self, *, interpreter: str = sys.executable, environ: Mapping[str, str] | None = None
    ) -> None:
        self._interpreter = interpreter
        self._environ = dict(os.environ if environ is None else environ)
        self._servers: dict[_ServerKey, ServerProcess] = {}
        self._scratch: ScratchDirectory | None = None  # made for the first server

    def runtime(self, case: Case | None = None) -> Runtime:
        return self._server(case).runtime

    def launch(self, request: LaunchRequest) -> LaunchResult | LaunchFailure:
        server = self._server(request.case)
        try:
            return server.launch(request)
        except ServerLostError as lost:
            failure = LaunchFailure(
                case_id=request.case.id,
                round=request.round,
                kind="server",
                rank=None,
                detail=str(lost),
                output=server.output_tail(),
            )
        self._forget(request.case)
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
            _check_device_order(environ)
        if key not in self._servers:
            self._scratch = self._scratch or ScratchDirectory()
            directory = Path(tempfile.mkdtemp(prefix="server-", dir=self._scratch.path))
            server = ServerProcess(self._interpreter, environ, directory, key.preloaded)
            self._servers[key] = server
        return self._servers[key]

    def _forget(self, case: Case) -> None:
        """Remove the server of `case`, which has ended: the next launch starts another."""
        server = self._servers.pop(_server_key(case))
        server.close()
        shutil.rmtree(server.directory, ignore_errors=True)


class _ServerKey(NamedTuple):
    env: frozenset[tuple[str, str]]
    preloaded: tuple[str, ...]  # workloads of the package that are imported before the fork


def _server_key(case: Case | None) -> _ServerKey:
    if case is None:
        return _ServerKey(frozenset(), ())
    preloaded = (case.workload,) if case.workload in PACKAGES else ()
    return _ServerKey(frozenset(case.env.items()), preloaded)


def _check_device_order(environ: Mapping[str, str]) -> None:
    """Raise LaunchError if CUDA would number the GPUs in another order than NVML.

    NVML's readings belong to the GPUs in NVML's order. In another order a mask would choose other
    GPUs than the user meant, and the figures of rank r would be those of another GPU.
    """
    order = environ.get("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    if order != "PCI_BUS_ID":
        raise LaunchError(
            f"CUDA_DEVICE_ORDER={order}: this suite numbers GPUs by their PCI bus ids, as"
            " nvidia-smi does; unset it, and choose GPUs by CUDA_VISIBLE_DEVICES in that order"
        )
