"""The machine as a session uses it: leased for timing, with a launcher for each suite."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Protocol, TypeVar

from ddp_perf.core.case import Case, Tier
from ddp_perf.core.environment import Cluster, LauncherName
from ddp_perf.core.launch import LaunchFailure, LaunchRequest, LaunchResult
from ddp_perf.launch.launcher import Launcher, Runtime
from ddp_perf.launch.server_launcher import ServerLauncher
from ddp_perf.system.capacity import Capacity
from ddp_perf.system.gpu.nvml import keep_open
from ddp_perf.system.lease import machine_lease

# The machine as a session uses it: leased for timing, with a launcher.


_LEASE_PATIENCE_S = 600


class Closable(Protocol):
    def close(self) -> None: ...


_LauncherT = TypeVar("_LauncherT", bound=Closable)  # a launcher, or those of several sides


@contextlib.contextmanager
def open_machine(
    capacity: Capacity,
    launcher: _LauncherT,
    *,
    on_wait: Callable[[str], None],
) -> Iterator[_LauncherT]:
    """Lease the machine with its GPUs, and yield the launcher, which is closed at the end.

    ``on_wait`` receives a line before this waits for another session. Raises LeaseError if the
    machine is not free in time. Between two launches this process uses the GPUs, so that the
    driver does not initialise them anew.
    """
    with (
        machine_lease(patience_s=_LEASE_PATIENCE_S, on_wait=on_wait, gpus=capacity.machine.gpus),
        contextlib.closing(launcher),
    ):
        if capacity.machine.gpus:
            keep_open(gpu.uuid for gpu in capacity.machine.gpus)
        yield launcher


# The launchers of a session: each suite has one of its own kind.


class Launchers:
    """A launcher that uses that of each case, and makes it before its first launch.

    ``on_wait`` receives a line while one waits for nodes.
    """

    def __init__(self, cluster: Cluster, *, on_wait: Callable[[str], None]) -> None:
        self._cluster = cluster
        self._on_wait = on_wait
        self._made: dict[tuple[LauncherName, bool], Launcher] = {}  # the latter: with GPUs

    def nodes(self, case: Case) -> tuple[str, ...]:
        return self._of(case).nodes(case)

    def runtime(self, case: Case | None = None) -> Runtime:
        return self._of(case).runtime(case)

    def launch(self, request: LaunchRequest) -> LaunchResult | LaunchFailure:
        return self._of(request.case).launch(request)

    def node_capacity(self) -> Capacity:
        """Return the capacity of the first node of Kubernetes. The driver may be anywhere.

        The nodes that were described are those that are measured.
        """
        launcher = self._named("kubernetes", "cpu")
        assert isinstance(launcher, ServerLauncher)
        return launcher.capacity()

    def close(self) -> None:
        with contextlib.ExitStack() as stack:
            for launcher in reversed(self._made.values()):
                stack.callback(launcher.close)
            self._made.clear()

    def _of(self, case: Case | None) -> Launcher:
        if case is None:
            return self._named("forkserver", "cpu")
        return self._named(case.launcher, case.tier)

    def _named(self, name: LauncherName, tier: Tier) -> Launcher:
        # Slurm gives GPUs to a job when it starts. The others ask for nothing in advance.
        key = name, name == "slurm" and tier == "gpu"
        if key not in self._made:
            self._made[key] = make_launcher(name, self._cluster, tier=tier, on_wait=self._on_wait)
        return self._made[key]


def make_launcher(
    name: LauncherName, cluster: Cluster, *, tier: Tier, on_wait: Callable[[str], None]
) -> Launcher:
    """Return the launcher of this name, for cases of a tier on the nodes of the cluster."""
    if name == "forkserver":
        return ServerLauncher()
    # Imported here: most sessions need no other launcher.
    from ddp_perf.session.measure.node_launchers import make_node_launcher

    return make_node_launcher(name, cluster, tier=tier, on_wait=on_wait)
