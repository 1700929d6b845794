"""The engine for Kubernetes: a launch is one indexed Job, with one pod for each node."""

from __future__ import annotations

import contextlib
import itertools
import json
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from ddp_perf.launch.nodes.engine import NodeEnd
from ddp_perf.launch.nodes.kubernetes.follow import Limits, follow
from ddp_perf.launch.nodes.kubernetes.kubectl import Kubectl, KubectlError
from ddp_perf.launch.nodes.kubernetes.manifest import render_job, render_service
from ddp_perf.launch.nodes.kubernetes.template import namespace_of
from ddp_perf.launch.scratch import ScratchDirectory

_SPARE_S = 60  # the cluster ends a launch this much after the driver would have
_DELETES = 3  # attempts


class KubernetesEngine:
    """An engine that runs the command in pods of the user's template.

    All launches of an engine run on the nodes of its first ones, so that a session compares code
    on the same machines. A node of a name is used only once in a launch. ``on_warn`` receives a
    line about what is left on the cluster.
    """

    node_variable = "JOB_COMPLETION_INDEX"  # which Kubernetes sets in the pods of an indexed Job

    def __init__(
        self,
        template: dict[str, Any],
        limits: Limits | None = None,
        *,
        on_warn: Callable[[str], None],
    ) -> None:
        self._template = template
        self._on_warn = on_warn
        self._limits = limits or Limits()
        self._kubectl = Kubectl(namespace_of(template))
        self._session = secrets.token_hex(4)
        self._number = itertools.count()
        self._nodes: tuple[str, ...] = ()  # of the first launches
        self._scratch = ScratchDirectory()

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes of the first launches; none before them."""
        return self._nodes

    def run(
        self,
        command: Sequence[str],
        *,
        nodes: int,
        only: str | None,
        deadline_s: float,
    ) -> tuple[NodeEnd, ...]:
        name = f"ddp-perf-{self._session}-{next(self._number)}"
        among = self._among(nodes) if only is None else (only,)
        limit_s = self._limits.start_s + deadline_s + _SPARE_S
        job = render_job(name, self._template, command, nodes=nodes, among=among, limit_s=limit_s)
        logs = Path(self._scratch.path) / name
        logs.mkdir()
        with self._job(job, nodes):
            ends = follow(
                self._kubectl,
                name,
                nodes=nodes,
                deadline_s=deadline_s,
                limits=self._limits,
                logs=logs,
            )
        if only is None:
            self._nodes += tuple(end.node for end in ends if end.node not in self._nodes)
        return ends

    def close(self) -> None:
        self._scratch.close()

    def _among(self, nodes: int) -> tuple[str, ...]:
        """Return the nodes that a launch must use; none if so many are not known yet."""
        return self._nodes[:nodes] if len(self._nodes) >= nodes else ()

    @contextlib.contextmanager
    def _job(self, job: dict[str, Any], nodes: int) -> Iterator[None]:
        """Create the Job, and delete it at the end, however the launch ends."""
        name = job["metadata"]["name"]
        try:
            created = json.loads(self._kubectl.create(job))
            if nodes > 1:
                self._kubectl.create(render_service(name, created["metadata"]["uid"]))
            yield
        finally:
            self._delete(name)

    def _delete(self, name: str) -> None:
        """Remove the Job. A failure is a warning: the launch is worth more."""
        for _ in range(_DELETES):
            try:
                return self._kubectl.delete_job(name)
            except KubectlError as error:
                why = error
                time.sleep(self._limits.poll_s)
        return self._on_warn(f"Job {name} is not deleted, and the cluster removes it later: {why}")
