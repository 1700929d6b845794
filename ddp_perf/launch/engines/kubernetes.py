"""The engine for Kubernetes: a Job holds nodes, and servers run in its pods through kubectl."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import secrets
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from ddp_perf.core.case import Tier
from ddp_perf.errors import LaunchError
from ddp_perf.launch.engine import SERVER, Transport, forwarded_variables
from ddp_perf.launch.engines.pods import (
    CONTAINER,
    DELETED,
    JOB_LABEL,
    PORT,
    Pod,
    decode_pods,
    namespace_of,
    render_job,
    render_service,
)
from ddp_perf.system.files import UNREADABLE

# kubectl, which reaches the cluster with the user's own context and credentials.


_REQUEST_S = 30  # for one answer of the cluster
_PROCESS_S = 90  # of a kubectl: a plugin that gets the credentials may hang


class _Metadata(msgspec.Struct, frozen=True, kw_only=True):
    uid: str


class _Created(msgspec.Struct, frozen=True, kw_only=True):
    """An object that the cluster has made."""

    metadata: _Metadata


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
        """Create an object of a new name, and return the cluster's id of it."""
        given = json.dumps(manifest)
        printed = self._ask("create", "--filename=-", "--output=json", given=given)
        try:
            return msgspec.json.decode(printed, type=_Created).metadata.uid
        except UNREADABLE as error:
            raise KubectlError(f"kubectl create: prints no object: {error}") from None

    def pods(self, job: str) -> Sequence[Pod]:
        """Return the pods of a Job, by index."""
        printed = self._ask("get", "pods", f"--selector={JOB_LABEL}={job}", "--output=json")
        try:
            return decode_pods(printed)
        except UNREADABLE as error:
            raise KubectlError(f"kubectl get pods: prints no list of pods: {error}") from None

    def warnings(self, name: str) -> str:
        """Return the messages of the warnings about an object, the last one last."""
        return self._ask(
            "get",
            "events",
            f"--field-selector=involvedObject.name={name},type=Warning",
            "--sort-by=.lastTimestamp",
            '--output=jsonpath={range .items[*]}{.message}{"\\n"}{end}',
        )

    def delete_job(self, name: str) -> None:
        """Remove a Job with its pods, and with its Service, if it exists."""
        self._ask("delete", "job", name, "--ignore-not-found", "--wait=false")

    def command(self, verb: str, *arguments: str) -> list[str]:
        return [self._program, verb, *self._namespace, *arguments]

    def _ask(self, verb: str, *arguments: str, given: str = "") -> str:
        try:
            done = subprocess.run(
                self.command(verb, f"--request-timeout={_REQUEST_S}s", *arguments),
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
            raise _refused(verb, done.stderr, done.returncode)
        return done.stdout


def _refused(verb: str, printed: str, code: int | None) -> KubectlError:
    lines = printed.strip().splitlines() or [f"exit code {code}"]
    return KubectlError(f"kubectl {verb}: {lines[-1]}")


# A pod that runs, and the connection that holds it.


class _HeldPod:
    """A pod, held by a kubectl that is attached to its holder: the pod ends with it.

    So the cluster gets the node back however this process ends. Raises KubectlError if the pod
    cannot be held.
    """

    def __init__(self, kubectl: Kubectl, job: str, pod: Pod) -> None:
        self.job, self.name, self.host = job, pod.name, f"{job}-{pod.index}.{job}"
        self._holding = subprocess.Popen(
            kubectl.command("attach", "--stdin", "--quiet", self.name, f"--container={CONTAINER}"),
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # the driver handles Ctrl-C
        )
        try:
            self._claim()
        except BaseException:
            self.release()
            raise

    @property
    def has_ended(self) -> bool:
        return self._holding.poll() is not None

    def _claim(self) -> None:
        """Send the holder its first line, which it answers with one."""
        assert self._holding.stdin is not None
        assert self._holding.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._holding.stdin.write(b"\n")
        if not wait([self._holding.stdout.fileno()], _PROCESS_S):
            raise KubectlError(f"kubectl attach: pod {self.name} gave no answer in {_PROCESS_S} s")
        if not self._holding.stdout.read(1):
            _, errors = self._holding.communicate()
            raise _refused("attach", errors.decode(errors="replace"), self._holding.returncode)

    def release(self) -> None:
        """Let the pod go. A second call does nothing."""
        with self._holding:
            if not self.has_ended:
                os.killpg(self._holding.pid, signal.SIGKILL)


# The engine.


_DELETES = 3  # attempts


class Limits(NamedTuple):
    """The patience of the driver with the cluster, in seconds."""

    start_s: float = 600.0  # for all pods to start: an autoscaler may have to add nodes
    obstacle_s: float = 60.0  # a container that cannot start: a registry may fail once
    silent_s: float = 60.0  # the cluster does not answer
    loss_s: float = 20.0  # for the state of a pod to show why its server has ended
    poll_s: float = 0.5


class _NotStartedError(LaunchError):
    """A pod did not start in all the time that it was given."""


class KubernetesEngine:
    """Servers run in pods of the user's template, one pod on each of ``nodes`` nodes.

    One Job holds the nodes from the first request until ``close``. A pod that is lost is replaced
    on the same node, so a session compares code on the same machines. ``on_warn`` receives a line
    about what is left on the cluster.
    """

    def __init__(
        self,
        template: dict[str, Any],
        limits: Limits | None = None,
        *,
        nodes: int,
        on_warn: Callable[[str], None],
    ) -> None:
        self.environ: Mapping[str, str] = dict(os.environ)
        self._template = template
        self._count = nodes
        self._on_warn = on_warn
        self._limits = limits or Limits()
        self._kubectl = Kubectl(namespace_of(template))
        self._session = secrets.token_hex(4)
        self._number = itertools.count()
        self._jobs: list[str] = []  # those to delete
        self._pods: dict[str, _HeldPod] = {}  # by node
        self._nodes: tuple[str, ...] = ()
        self._given_up: dict[str, LaunchError] = {}  # by node: why its pod is not replaced

    @property
    def nodes(self) -> tuple[str, ...]:
        if not self._nodes:
            self._pods = self._hold()
            self._nodes = tuple(self._pods)
        return self._nodes

    def transport(self, node: str, tier: Tier, scratch: Path) -> Transport:
        pod = self._held(node).name
        return Transport(
            who=f"the server on {node} (kubectl exec {pod})",
            # The Python of an image is the one that its PATH has.
            words=self._kubectl.command(
                *("exec", "--stdin", pod, f"--container={CONTAINER}", "--", "python", *SERVER)
            ),
            environ=self.environ,
            variables=forwarded_variables(tier),
            remedy="install this version of ddp_perf in the image",
        )

    def endpoint(self, node: str) -> str:
        with contextlib.suppress(LaunchError):  # `transport` raises it
            self._held(node)
        return f"{self._pods[node].host}:{PORT}"

    def loss(self, node: str) -> str | None:
        pod = self._pods[node]
        end = time.monotonic() + self._limits.loss_s
        while time.monotonic() < end:
            with contextlib.suppress(KubectlError):
                states = [one for one in self._kubectl.pods(pod.job) if one.name == pod.name]
                why = states[0].failure() if states else DELETED
                if why is not None:
                    pod.release()
                    return why
            time.sleep(self._limits.poll_s)
        return None

    def close(self) -> None:
        for pod in self._pods.values():
            pod.release()
        while self._jobs:
            self._delete(self._jobs[-1])

    def _held(self, node: str) -> _HeldPod:
        """Return the pod on the node: another one if it was lost. Raises LaunchError."""
        if node in self._given_up:
            raise self._given_up[node]
        if self._pods[node].has_ended:
            self._pods[node].release()
            try:
                self._pods |= self._hold(node)
            except _NotStartedError as error:  # each case would wait for it anew
                self._given_up[node] = error
                raise
        return self._pods[node]

    def _hold(self, only: str | None = None) -> dict[str, _HeldPod]:
        """Return new pods by the name of their node: of ``only`` one, or of as many as needed."""
        name = f"ddp-perf-{self._session}-{next(self._number)}"
        count = self._count if only is None else 1
        held: dict[str, _HeldPod] = {}
        self._jobs.append(name)
        try:
            job = render_job(name, self._template, nodes=count, only=only)
            uid = self._kubectl.create(job)
            if self._count > 1:
                self._kubectl.create(render_service(name, uid))
            for pod in self._started(name, count):
                held[pod.node] = _HeldPod(self._kubectl, name, pod)
        except BaseException:  # also Ctrl-C while the pods wait for nodes
            for one in held.values():
                one.release()
            self._delete(name)
            raise
        return held

    def _started(self, name: str, count: int) -> Sequence[Pod]:
        """Wait until all pods of a Job have started. Raises LaunchError if one does not."""
        pods: Sequence[Pod] = ()
        begun = answered = unhindered = time.monotonic()
        while True:
            now = time.monotonic()
            try:
                pods = self._kubectl.pods(name)
                answered = now
            except KubectlError:
                if now - answered > self._limits.silent_s:
                    raise
            if (failed := _first(pods, Pod.failure)) is not None:
                raise LaunchError(f"Job {name}: {failed}")
            if len(pods) == count and all(pod.started for pod in pods):
                return pods
            unhindered = now if _first(pods, Pod.obstacle) is None else unhindered
            stuck = now - unhindered > self._limits.obstacle_s
            if stuck or now - begun > self._limits.start_s:
                raise _NotStartedError(f"Job {name}: {self._not_started(name, pods, count)}")
            time.sleep(self._limits.poll_s)

    def _not_started(self, name: str, pods: Sequence[Pod], count: int) -> str:
        unplaced = [why for pod in pods if (why := pod.unplaced()) is not None]
        if (obstacle := _first(pods, Pod.obstacle)) is not None:
            return obstacle
        if unplaced:
            who = "1 pod has" if len(unplaced) == 1 else f"{len(unplaced)} pods have"
            return f"{who} no node: {unplaced[0]}"
        if len(pods) < count:
            warnings = self._kubectl.warnings(name).strip().splitlines()
            why = warnings[-1] if warnings else "the cluster gives no reason"
            return f"{count - len(pods)} of {count} pods were not created: {why}"
        waiting = [pod.node for pod in pods if not pod.started]
        return f"the pod on node {waiting[0]} did not start within {self._limits.start_s:.0f} s"

    def _delete(self, name: str) -> None:
        """Remove a Job. A failure is a warning: what was measured is worth more."""
        for _ in range(_DELETES):
            try:
                self._kubectl.delete_job(name)
                return self._jobs.remove(name)
            except KubectlError as error:
                why = error
                time.sleep(self._limits.poll_s)
        self._jobs.remove(name)
        return self._on_warn(f"Job {name} is not deleted, and the cluster removes it later: {why}")


def _first(pods: Sequence[Pod], problem: Callable[[Pod], str | None]) -> str | None:
    """Return the first problem, with the node of its pod."""
    found = ((pod.node, problem(pod)) for pod in pods)
    return next((f"node {node}: {why}" for node, why in found if why is not None), None)
