"""The launchers of a session: each suite has one of its own kind."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ddp_perf.core.case import Case, Tier
from ddp_perf.core.cluster import Cluster, LauncherName
from ddp_perf.core.launch import LaunchFailure, LaunchRequest, LaunchResult
from ddp_perf.launch.forkserver import ForkserverLauncher
from ddp_perf.launch.launcher import Launcher, Runtime
from ddp_perf.system.capacity import Capacity


class Launchers:
    """A launcher that uses that of each case, and makes it before its first launch.

    Its engines write under ``root``. ``on_wait`` receives a line while one waits for nodes.
    """

    def __init__(self, cluster: Cluster, *, root: Path, on_wait: Callable[[str], None]) -> None:
        self._cluster = cluster
        self._root = root
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
        from ddp_perf.launch.nodes.node_launcher import NodeLauncher

        launcher = self._named("kubernetes", "cpu")
        assert isinstance(launcher, NodeLauncher)
        return launcher.capacity()

    def close(self) -> None:
        for launcher in self._made.values():
            launcher.close()
        self._made.clear()

    def _of(self, case: Case | None) -> Launcher:
        if case is None:
            return self._named("forkserver", "cpu")
        return self._named(case.launcher, case.tier)

    def _named(self, name: LauncherName, tier: Tier) -> Launcher:
        # Slurm gives GPUs to a job when it starts. The others ask for nothing in advance.
        key = name, name == "slurm" and tier == "gpu"
        if key not in self._made:
            launcher = make_launcher(
                name, self._cluster, tier=tier, root=self._root, on_wait=self._on_wait
            )
            self._made[key] = launcher
        return self._made[key]


def make_launcher(
    name: LauncherName, cluster: Cluster, *, tier: Tier, root: Path, on_wait: Callable[[str], None]
) -> Launcher:
    """Return the launcher of this name, for cases of a tier on the nodes of the cluster."""
    if name == "forkserver":
        return ForkserverLauncher()
    # Imported here: most sessions need no other launcher.
    from ddp_perf.session.measure.node_launchers import make_node_launcher

    return make_node_launcher(name, cluster, tier=tier, root=root, on_wait=on_wait)
