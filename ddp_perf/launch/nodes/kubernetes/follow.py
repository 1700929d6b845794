"""Follow the pods of a launch to their ends, and collect what they printed."""

from __future__ import annotations

import contextlib
import subprocess
import time
from pathlib import Path
from typing import NamedTuple

from ddp_perf.errors import LaunchError
from ddp_perf.launch.nodes.engine import GRACE_S, NodeEnd
from ddp_perf.launch.nodes.kubernetes.kubectl import Kubectl, KubectlError
from ddp_perf.launch.nodes.kubernetes.manifest import LAUNCH_LABEL
from ddp_perf.launch.nodes.kubernetes.pods import Pod, decode_pods
from ddp_perf.launch.nodes.kubernetes.template import CONTAINER


class Limits(NamedTuple):
    """The patience of the driver with the cluster, in seconds."""

    start_s: float = 600.0  # for all pods to start: an autoscaler may have to add nodes
    obstacle_s: float = 60.0  # a container that cannot start: a registry may fail once
    silent_s: float = 60.0  # the cluster does not answer
    others_s: float = GRACE_S  # the other pods end by themselves after one has failed
    log_s: float = 40.0  # a pod that is deleted ends in 30 s, and the rest of its log arrives
    poll_s: float = 0.5


def follow(
    kubectl: Kubectl,
    name: str,
    *,
    nodes: int,
    deadline_s: float,
    limits: Limits,
    logs: Path,
) -> tuple[NodeEnd, ...]:
    """Return the ends of the pods of a Job, by index. The caller deletes the Job.

    The deadline begins when all pods have started. Raises LaunchError if they do not start in
    time, or if the cluster does not answer.
    """
    launch = _Launch(kubectl, name, nodes, limits, logs)
    try:
        launch.wait(deadline_s)
        return launch.ends()
    finally:
        launch.close()


class _Launch:
    """The pods of one launch, as they were seen last, and their logs."""

    def __init__(self, kubectl: Kubectl, name: str, nodes: int, limits: Limits, logs: Path) -> None:
        self._kubectl, self._name, self._nodes = kubectl, name, nodes
        self._limits, self._logs = limits, logs
        self._pods: dict[int, Pod] = {}
        self._failures: dict[int, str] = {}  # in the order in which they were seen
        self._ended: set[int] = set()  # for a deadline or for another one, not by itself
        self._log_readers: dict[int, subprocess.Popen[bytes]] = {}

    def wait(self, deadline_s: float) -> None:
        """Wait until all pods have ended, one has failed, or the deadline has passed."""
        answered = begun = time.monotonic()
        started: float | None = None
        obstacle: float | None = None
        failed: float | None = None
        while True:
            try:
                self._look()
                answered = time.monotonic()
            except KubectlError:
                if time.monotonic() - answered > self._limits.silent_s:
                    raise
            now = time.monotonic()
            if len(self._pods) == self._nodes and all(map(self._over, self._pods)):
                return
            if self._failures:
                failed = failed or now
                if now - failed > self._limits.others_s:
                    return
            elif self._started():
                started = started or now
                if now - started > deadline_s:
                    self._expire(deadline_s)
                    return
            else:
                obstacle = (obstacle or now) if self._obstacle() is not None else None
                stuck = obstacle is not None and now - obstacle > self._limits.obstacle_s
                if stuck or now - begun > self._limits.start_s:
                    raise LaunchError(self._not_started())
            time.sleep(self._limits.poll_s)

    def ends(self) -> tuple[NodeEnd, ...]:
        """Return the ends, with all that the pods have printed.

        Pods that still run are ended: their node processes then print an outcome.
        """
        if not all(pod.ended for pod in self._pods.values()):
            with contextlib.suppress(KubectlError):  # the ends are more important
                self._kubectl.delete_job(self._name)
        return tuple(self._end(index) for index in range(self._nodes))

    def close(self) -> None:
        """End the readers of logs that still run."""
        for reader in self._log_readers.values():
            reader.kill()
            reader.wait()

    def _look(self) -> None:
        """Read the pods' states, note the failures, and read the logs of those that started."""
        pods = decode_pods(self._kubectl.pods(f"{LAUNCH_LABEL}={self._name}"))
        self._pods |= {pod.index: pod for pod in pods}
        self._note_failures({pod.index for pod in pods})
        for pod in pods:
            if pod.started and pod.index not in self._log_readers:
                self._log_readers[pod.index] = self._kubectl.follow_log(
                    pod.metadata.name, CONTAINER, self._log(pod.index)
                )

    def _note_failures(self, present: set[int]) -> None:
        """Note the pods that failed since the last look, the causes first.

        A pod that somebody deletes comes after one that failed by itself, or by its node.
        """

        def is_removed(index: int) -> bool:
            pod = self._pods[index]
            return (index not in present or pod.deleted) and pod.disruption() is None

        def order(index: int) -> tuple[bool, bool, str]:
            pod = self._pods[index]
            since = pod.metadata.deletion_timestamp or "later"  # behind every date
            return is_removed(index), pod.disruption() is None, since

        for index in sorted(self._pods, key=order):
            pod = self._pods[index]
            why = pod.failure()
            if index in self._failures or (pod.ended and why is None):
                continue
            if is_removed(index):
                why = "its pod was deleted"
                if self._failures:
                    why = self._ended_by()
                    self._ended.add(index)
            if why is not None:
                self._failures[index] = why

    def _over(self, index: int) -> bool:
        return index in self._failures or self._pods[index].ended

    def _ended_by(self) -> str:
        first = next(iter(self._failures))
        return f"it was ended, because node {self._pods[first].node} had failed"

    def _started(self) -> bool:
        return len(self._pods) == self._nodes and all(pod.started for pod in self._pods.values())

    def _expire(self, deadline_s: float) -> None:
        for index in self._pods:
            if not self._over(index):
                self._failures[index] = f"it still ran after {deadline_s:.0f} s"
                self._ended.add(index)

    def _obstacle(self) -> str | None:
        """Return why a container cannot start, with the pod's node."""
        for pod in self._pods.values():
            if (why := pod.obstacle()) is not None:
                return f"node {pod.node}: {why}"
        return None

    def _not_started(self) -> str:
        """Return why the launch could not be started."""
        unplaced = [why for pod in self._pods.values() if (why := pod.unplaced()) is not None]
        missing = self._nodes - len(self._pods)
        if (obstacle := self._obstacle()) is not None:
            return f"Job {self._name}: {obstacle}"
        if unplaced:
            pods = "1 pod has" if len(unplaced) == 1 else f"{len(unplaced)} pods have"
            return f"Job {self._name}: {pods} no node: {unplaced[0]}"
        if missing:
            warnings = self._kubectl.warnings(self._name).strip().splitlines()
            why = warnings[-1] if warnings else "the cluster gives no reason"
            return f"Job {self._name}: {missing} of {self._nodes} pods were not created: {why}"
        waiting = [pod.node for pod in self._pods.values() if not pod.started]
        limit = f"{self._limits.start_s:.0f} s"
        return f"Job {self._name}: the pod on node {waiting[0]} did not start within {limit}"

    def _end(self, index: int) -> NodeEnd:
        pod = self._pods.get(index)
        if pod is None:
            return NodeEnd(node=f"{self._name}-{index}", output="", failure="it has no pod")
        failure = self._failures.get(index)
        if failure is None and not pod.ended:  # another one had failed, and this one went on
            failure = self._ended_by()
            self._ended.add(index)
        return NodeEnd(
            node=pod.node,
            output=self._output(index, pod),
            failure=failure,
            was_ended=index in self._ended,
        )

    def _output(self, index: int, pod: Pod) -> str:
        """Return what the pod printed: as it was followed, or read again if that broke off."""
        reader = self._log_readers.get(index)
        if reader is None:
            return ""
        last = time.monotonic() + self._limits.log_s
        while reader.poll() is None and time.monotonic() < last:
            time.sleep(self._limits.poll_s)
        if reader.returncode != 0 and pod.ended:
            try:
                return self._kubectl.log(pod.metadata.name, CONTAINER)
            except KubectlError:  # the pod is gone, with what was not followed
                pass
        return self._log(index).read_text(encoding="utf-8", errors="replace")

    def _log(self, index: int) -> Path:
        return self._logs / f"{index}.log"
