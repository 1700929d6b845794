"""Pods: their template, the manifest of their Job, and what their state means for a node."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import yaml

from ddp_perf.errors import ConfigError

# The pod template: what a user states of the cluster, in one file.


CONTAINER = "rank"  # the container of the template in which ranks run


def read_pod_template(path: Path) -> dict[str, Any]:
    """Return the PodTemplate in a YAML file. Raises ConfigError if ranks cannot run in it."""
    try:
        manifest = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"pod_template: {path}: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: no YAML: {' '.join(str(error).split())}") from None
    if not isinstance(manifest, dict) or manifest.get("kind") != "PodTemplate":
        raise ConfigError(
            f"{path}: its kind is not PodTemplate (apiVersion: v1, kind: PodTemplate, and template:"
            f" with a pod whose container {CONTAINER!r} runs the ranks)"
        )
    try:
        containers = manifest["template"]["spec"]["containers"]
        ranks = [each for each in containers if each["name"] == CONTAINER]
    except (KeyError, TypeError):
        raise ConfigError(f"{path}: template.spec.containers is not a list of containers") from None
    if len(ranks) != 1:
        raise ConfigError(f"{path}: {len(ranks)} containers are named {CONTAINER!r}, not one")
    if not ranks[0].get("image"):
        raise ConfigError(f"{path}: the container {CONTAINER!r} has no image")
    for owned in ("command", "args"):
        if owned in ranks[0]:
            raise ConfigError(
                f"{path}: the container {CONTAINER!r} has {owned!r}, which ddp_perf sets; remove it"
            )
    return manifest


def namespace_of(template: dict[str, Any]) -> str | None:
    """Return the namespace that the template states. None: that of kubectl's context."""
    metadata = template.get("metadata") or {}
    namespace: str | None = metadata.get("namespace")
    return namespace


# The state of a pod, and what it means for its node: it started, it failed, or why it cannot start.


DELETED = "its pod was deleted"
_INDEX = "batch.kubernetes.io/job-completion-index"
_CANNOT_START = (  # reasons for which a container waits, and that seldom pass by themselves
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
    "ErrImageNeverPull",
    "CreateContainerConfigError",
    "CreateContainerError",
    "RunContainerError",
)


# Parts of kubectl's JSON; further fields are ignored.


class Waiting(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    reason: str = ""
    message: str = ""


class Terminated(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    exit_code: int
    reason: str = ""
    message: str = ""


class ContainerState(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    waiting: Waiting | None = None
    running: dict[str, Any] | None = None
    terminated: Terminated | None = None


class ContainerStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    name: str
    image: str = ""
    state: ContainerState = ContainerState()


class Condition(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    type: str
    status: str
    reason: str = ""
    message: str = ""


class PodStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    phase: str = "Pending"
    reason: str = ""
    message: str = ""
    conditions: tuple[Condition, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()

    def condition(self, kind: str, status: str) -> Condition | None:
        """Return the condition of this type, if its status is this one."""
        fitting = (each for each in self.conditions if (each.type, each.status) == (kind, status))
        return next(fitting, None)


class PodMetadata(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    name: str
    annotations: dict[str, str] = {}
    deletion_timestamp: str | None = None


class PodSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    node_name: str | None = None


class Pod(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A pod of a Job, as the cluster sees it."""

    metadata: PodMetadata
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def index(self) -> int:
        """The number of the pod in its Job."""
        return int(self.metadata.annotations[_INDEX])

    @property
    def node(self) -> str:
        """The name of its node, or its own before it has one."""
        return self.spec.node_name or self.name

    @property
    def started(self) -> bool:
        """True if its ranks' container runs."""
        return self._state().running is not None

    def obstacle(self) -> str | None:
        """Return why a container of it cannot start. None: nothing is in its way so far."""
        for status in (*self.status.init_container_statuses, *self.status.container_statuses):
            waiting = status.state.waiting
            if waiting is not None and waiting.reason in _CANNOT_START:
                why = waiting.message or waiting.reason
                return f"container {status.name!r} with image {status.image} cannot start: {why}"
        return None

    def unplaced(self) -> str | None:
        """Return the scheduler's message, if it found no node."""
        refused = self.status.condition("PodScheduled", "False")
        return None if refused is None else refused.message or refused.reason

    def failure(self) -> str | None:
        """Return how it failed, or was ended. None: it was not."""
        terminated = self._state().terminated
        if terminated is not None and terminated.reason == "OOMKilled":
            return "the kernel ended it, because it exceeded its memory limit (OOMKilled)"
        if self.status.phase == "Failed" and self.status.reason:  # Evicted, Terminated
            return _stated(self.status.reason, self.status.message)
        if (disrupted := self.status.condition("DisruptionTarget", "True")) is not None:
            return _stated(disrupted.reason, disrupted.message)
        if self.metadata.deletion_timestamp is not None:
            return DELETED
        if terminated is not None:
            code = f"its container ended with exit code {terminated.exit_code}"
            return _stated(code, terminated.message)
        if self.status.phase == "Failed":
            return "the pod failed"
        return "the node does not answer" if self._unanswered() else None

    def _unanswered(self) -> bool:
        """Return True if the control plane has lost the node.

        It then sets the pod's Ready to False and gives no reason; the node itself gives one.
        """
        if self.status.phase == "Unknown":
            return True
        unready = self.status.condition("Ready", "False")
        return self.status.phase == "Running" and unready is not None and not unready.reason

    def _state(self) -> ContainerState:
        named = (each for each in self.status.container_statuses if each.name == CONTAINER)
        status = next(named, None)
        return ContainerState() if status is None else status.state


class _PodList(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    items: tuple[Pod, ...]


def decode_pods(text: str) -> Sequence[Pod]:
    """Return the pods that ``kubectl get pods -o json`` printed, by index. Raises DecodeError."""
    return sorted(msgspec.json.decode(text, type=_PodList).items, key=lambda pod: pod.index)


def _stated(reason: str, message: str) -> str:
    return f"{reason}: {' '.join(message.split())}" if message else reason


# The manifests: an indexed Job with one pod for each node, and the Service that names its pods.


JOB_LABEL = "ddp-perf/job"  # of the Job, its pods and its Service
HOST_LABEL = "kubernetes.io/hostname"
PORT = 29400  # at which ranks meet, in the pod of the first node

# Each pod ends by itself: when the driver that holds it has ended, or if none has come. The
# deadline is for a connection whose end the cluster does not see. A session may take hours, seldom
# a day; a longer one loses a launch, and goes on with another Job.
_DEADLINE_S = 24 * 3600
_UNCLAIMED_S = 900  # more than a driver waits for the other pods
_KEPT_S = 600  # a Job that nobody has deleted, since its driver was killed, is then removed
_SHM = "/dev/shm"

# It ends with its standard input, and all in its container with it. Its first line must come in
# time. A kubelet closes a connection on which nothing is sent, so it sends a line each minute.
HOLDER = """
import os, select, signal, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit())  # the first process of a container ignores it
signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # it inherits orphans
if select.select([0], [], [], float(sys.argv[1]))[0]:
    while not select.select([0], [], [], 60)[0] or os.read(0, 4096):
        print(flush=True)
"""


def render_job(
    name: str, template: dict[str, Any], *, nodes: int, only: str | None = None
) -> dict[str, Any]:
    """Return the Job that holds so many nodes, with one pod on each.

    ``only``: the name of the one node; None: wherever the template allows.
    """
    pod = copy.deepcopy(template["template"])
    stated = pod.get("metadata") or {}
    labels = {
        **(stated.get("labels") or {}),
        "app.kubernetes.io/managed-by": "ddp-perf",
        JOB_LABEL: name,
    }
    pod["metadata"] = {**stated, "labels": labels}
    spec = pod["spec"]
    spec["restartPolicy"] = "Never"
    spec["subdomain"] = name  # with the Service of this name: pod 0 has the name NAME-0.NAME
    [container] = [each for each in spec["containers"] if each["name"] == CONTAINER]
    container["command"] = ["python", "-c", HOLDER, str(_UNCLAIMED_S)]
    container |= {"stdin": True, "stdinOnce": True, "tty": False}  # closed with the connection
    _share_memory(spec, container)
    _spread(spec, name)
    if only is not None:
        _stay(spec, only)
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "completionMode": "Indexed",
            "completions": nodes,
            "parallelism": nodes,
            "backoffLimitPerIndex": 0,  # no pod is started again, and none ends the others
            "activeDeadlineSeconds": _DEADLINE_S,
            "ttlSecondsAfterFinished": _KEPT_S,
            "template": pod,
        },
    }


def render_service(name: str, job_uid: str) -> dict[str, Any]:
    """Return the headless Service that names the pods of a Job. It is deleted with the Job."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": name,
            "labels": {"app.kubernetes.io/managed-by": "ddp-perf", JOB_LABEL: name},
            "ownerReferences": [
                {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": job_uid}
            ],
        },
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,  # ranks look for pod 0 while it starts
            "selector": {JOB_LABEL: name},
        },
    }


def _share_memory(spec: dict[str, Any], container: dict[str, Any]) -> None:
    """Give the ranks a /dev/shm as large as their memory, unless the template does.

    That of a container is 64 MiB by default: too little for NCCL and for loaders of batches.
    """
    mounts = container.get("volumeMounts") or []
    if any(mount.get("mountPath") == _SHM for mount in mounts):
        return
    container["volumeMounts"] = [*mounts, {"name": "ddp-perf-shm", "mountPath": _SHM}]
    volume = {"name": "ddp-perf-shm", "emptyDir": {"medium": "Memory"}}
    spec["volumes"] = [*(spec.get("volumes") or []), volume]


def _spread(spec: dict[str, Any], name: str) -> None:
    """Put each pod of the Job on a host of its own."""
    affinity = spec["affinity"] = dict(spec.get("affinity") or {})
    apart = affinity["podAntiAffinity"] = dict(affinity.get("podAntiAffinity") or {})
    key = "requiredDuringSchedulingIgnoredDuringExecution"
    own = {"labelSelector": {"matchLabels": {JOB_LABEL: name}}, "topologyKey": HOST_LABEL}
    apart[key] = [*(apart.get(key) or []), own]


def _stay(spec: dict[str, Any], node: str) -> None:
    """Keep the pod on the node of this name; each term of the template remains."""
    affinity = spec["affinity"]["nodeAffinity"] = dict(spec["affinity"].get("nodeAffinity") or {})
    key = "requiredDuringSchedulingIgnoredDuringExecution"
    terms = (affinity.get(key) or {}).get("nodeSelectorTerms") or [{}]
    named = {"key": "metadata.name", "operator": "In", "values": [node]}
    affinity[key] = {
        "nodeSelectorTerms": [  # terms are alternatives
            {**term, "matchFields": [*(term.get("matchFields") or []), named]} for term in terms
        ]
    }
