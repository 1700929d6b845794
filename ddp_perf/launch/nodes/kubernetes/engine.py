"""The engine for Kubernetes: a launch is one indexed Job, followed through kubectl to its end."""

from __future__ import annotations

import contextlib
import itertools
import json
import secrets
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ddp_perf.errors import LaunchError
from ddp_perf.launch.launcher import ScratchDirectory
from ddp_perf.launch.nodes.engine import GRACE_S, NodeEnd
from ddp_perf.launch.nodes.kubernetes.pods import (
    CONTAINER,
    LAUNCH_LABEL,
    Pod,
    decode_pods,
    namespace_of,
    render_job,
    render_service,
)

# kubectl, which reaches the cluster with the user's own context and credentials.


_REQUEST_S = 30  # for one answer of the cluster
_PROCESS_S = 90  # of a kubectl: a plugin that gets the credentials may hang


class KubectlError(LaunchError):
    """The cluster refused a request, or did not answer it."""


class Kubectl:
    """Requests to one namespace. None: the namespace of kubectl's current context."""

    def __init__(self, namespace: str | None) -> None:
        program = shutil.which("kubectl")
        if program is None:
            raise LaunchError(
                "launcher: kubernetes needs kubectl, and it is not on PATH;"
                " https://kubernetes.io/docs/tasks/tools/ has it"
            )
        self._program = program
        self._namespace = [] if namespace is None else [f"--namespace={namespace}"]

    def create(self, manifest: dict[str, Any]) -> str:
        """Create an object of a new name, and return the cluster's JSON of it."""
        return self._ask("create", "--filename=-", "--output=json", given=json.dumps(manifest))

    def pods(self, selector: str) -> str:
        """Return the pods with this label, as JSON."""
        return self._ask("get", "pods", f"--selector={selector}", "--output=json")

    def warnings(self, name: str) -> str:
        """Return the messages of the warnings about an object, the last one last."""
        return self._ask(
            "get",
            "events",
            f"--field-selector=involvedObject.name={name},type=Warning",
            "--sort-by=.lastTimestamp",
            '--output=jsonpath={range .items[*]}{.message}{"\\n"}{end}',
        )

    def log(self, pod: str, container: str) -> str:
        """Return what a container has printed."""
        return self._ask("logs", pod, f"--container={container}")

    def follow_log(self, pod: str, container: str, file: Path) -> subprocess.Popen[bytes]:
        """Write what a container prints into a file, until it ends."""
        with file.open("wb") as output:
            return subprocess.Popen(
                [*self._command("logs"), pod, f"--container={container}", "--follow"],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # the user's Ctrl-C ends the launch, and not the log
            )

    def delete_job(self, name: str) -> None:
        """Remove a Job with its pods, and with its Service, if it exists."""
        self._ask("delete", "job", name, "--ignore-not-found", "--wait=false")

    def _ask(self, *arguments: str, given: str = "") -> str:
        verb, *rest = arguments
        command = [*self._command(verb), f"--request-timeout={_REQUEST_S}s", *rest]
        try:
            done = subprocess.run(
                command,
                input=given,
                capture_output=True,
                encoding="utf-8",
                errors="replace",
                start_new_session=True,  # the user's Ctrl-C must not end the delete
                check=False,
                timeout=_PROCESS_S,
            )
        except subprocess.TimeoutExpired:
            raise KubectlError(f"kubectl {verb}: it did not end in {_PROCESS_S} s") from None
        if done.returncode != 0:
            lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
            raise KubectlError(f"kubectl {verb}: {lines[-1]}")
        return done.stdout

    def _command(self, verb: str) -> list[str]:
        return [self._program, verb, *self._namespace]


# Follow the pods of a launch to their ends, and collect what they printed.


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


# The engine for Kubernetes: a launch is one indexed Job, with one pod for each node.


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
