"""Pods: their template, the manifest of their Job, and what their state means for a node."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import yaml

from ddp_perf.errors import ConfigError
from ddp_perf.launch.nodes.engine import ENDPOINT_VARIABLE

# The pod template: what a user states of the cluster, in one file, before the first launch.


CONTAINER = "rank"  # the container of the template that runs the ranks of its node


def read_pod_template(path: Path) -> dict[str, Any]:
    """Return the PodTemplate in a YAML file. Raises ConfigError if it cannot run a launch."""
    try:
        manifest = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"pod_template: {path}: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: no YAML: {' '.join(str(error).split())}") from None
    if not isinstance(manifest, dict) or manifest.get("kind") != "PodTemplate":
        raise ConfigError(
            f"{path}: its kind is not PodTemplate; docs/clusters.md describes the file"
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
                f"{path}: the container {CONTAINER!r} has {owned!r}, which each launch sets; remove"
                " it"
            )
    return manifest


def namespace_of(template: dict[str, Any]) -> str | None:
    """Return the namespace that the template states. None: that of kubectl's context."""
    metadata = template.get("metadata") or {}
    namespace: str | None = metadata.get("namespace")
    return namespace


# The state of a pod, and what it means for its node: it started, it ended, or why it cannot.


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
    """A pod of a launch, as the cluster sees it."""

    metadata: PodMetadata
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def index(self) -> int:
        """The number of its node in the launch."""
        return int(self.metadata.annotations[_INDEX])

    @property
    def node(self) -> str:
        """The name of its node, or its own before it has one."""
        return self.spec.node_name or self.metadata.name

    @property
    def deleted(self) -> bool:
        return self.metadata.deletion_timestamp is not None

    @property
    def started(self) -> bool:
        """True if its ranks' container runs or has run."""
        state = self._state()
        return state.running is not None or state.terminated is not None or self.ended

    @property
    def ended(self) -> bool:
        finished = self.status.phase in ("Succeeded", "Failed")
        return finished or self._state().terminated is not None

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
        """Return how it failed. None: it has not."""
        if (disruption := self.disruption()) is not None:
            return disruption
        terminated = self._state().terminated
        if terminated is not None:
            return None if terminated.exit_code == 0 else f"exit code {terminated.exit_code}"
        if self.status.phase == "Failed":
            return "the pod failed"
        return "the node does not answer" if self._unanswered() else None

    def disruption(self) -> str | None:
        """Return why the kernel, its node or the control plane ended it. None: they did not."""
        terminated = self._state().terminated
        if terminated is not None and terminated.reason == "OOMKilled":
            return "the kernel ended it, because it exceeded its memory limit (OOMKilled)"
        if self.status.phase == "Failed" and self.status.reason:  # Evicted, Terminated
            return _stated(self.status.reason, self.status.message)
        disrupted = self.status.condition("DisruptionTarget", "True")
        return None if disrupted is None else _stated(disrupted.reason, disrupted.message)

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
    """Return the pods that ``kubectl get pods -o json`` printed, by index."""
    return sorted(msgspec.json.decode(text, type=_PodList).items, key=lambda pod: pod.index)


def _stated(reason: str, message: str) -> str:
    return f"{reason}: {' '.join(message.split())}" if message else reason


# The manifests of a launch: an indexed Job with one pod for each node, and the name of pod 0.


LAUNCH_LABEL = "ddp-perf/launch"  # of the Job, its pods and its Service
HOST_LABEL = "kubernetes.io/hostname"

_KEPT_S = 600  # a Job that nobody has deleted, since its driver was killed, is then removed
_SHM = "/dev/shm"
_PORT = 29400  # torchrun's own for a rendezvous


def render_job(
    name: str,
    template: dict[str, Any],
    command: Sequence[str],
    *,
    nodes: int,
    among: Sequence[str],
    limit_s: float,
) -> dict[str, Any]:
    """Return the Job: ``command`` once on each of so many nodes.

    The pods run on nodes of ``among``, given by name; empty: wherever the template allows. The
    cluster ends them after ``limit_s`` seconds, whether or not the driver still exists.
    """
    pod = copy.deepcopy(template["template"])
    stated = pod.get("metadata") or {}
    labels = {
        **(stated.get("labels") or {}),
        "app.kubernetes.io/managed-by": "ddp-perf",
        LAUNCH_LABEL: name,
    }
    pod["metadata"] = {**stated, "labels": labels}
    spec = pod["spec"]
    spec["restartPolicy"] = "Never"
    spec["subdomain"] = name  # with the Service of this name: pod 0 has the name NAME-0.NAME
    _run(spec, command, name)
    _share_memory(spec)
    _spread(spec, name)
    _stay(spec, among)
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "completionMode": "Indexed",
            "completions": nodes,
            "parallelism": nodes,
            "backoffLimitPerIndex": 0,  # no pod is started again, and none ends the others
            "activeDeadlineSeconds": math.ceil(limit_s),
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
            "labels": {"app.kubernetes.io/managed-by": "ddp-perf", LAUNCH_LABEL: name},
            "ownerReferences": [
                {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": job_uid}
            ],
        },
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,  # ranks look for pod 0 while it starts
            "selector": {LAUNCH_LABEL: name},
        },
    }


def _run(spec: dict[str, Any], command: Sequence[str], name: str) -> None:
    """Set the command, and the rendezvous in pod 0."""
    [container] = [each for each in spec["containers"] if each["name"] == CONTAINER]
    container["command"] = list(command)
    endpoint = {"name": ENDPOINT_VARIABLE, "value": f"{name}-0.{name}:{_PORT}"}
    container["env"] = [*(container.get("env") or []), endpoint]


def _share_memory(spec: dict[str, Any]) -> None:
    """Give the ranks a /dev/shm as large as their memory, unless the template does.

    That of a container is 64 MiB by default: too little for NCCL and for loaders of batches.
    """
    [container] = [each for each in spec["containers"] if each["name"] == CONTAINER]
    mounts = container.get("volumeMounts") or []
    if any(mount.get("mountPath") == _SHM for mount in mounts):
        return
    container["volumeMounts"] = [*mounts, {"name": "ddp-perf-shm", "mountPath": _SHM}]
    volume = {"name": "ddp-perf-shm", "emptyDir": {"medium": "Memory"}}
    spec["volumes"] = [*(spec.get("volumes") or []), volume]


def _spread(spec: dict[str, Any], name: str) -> None:
    """Put each pod of the launch on a host of its own."""
    affinity = spec["affinity"] = dict(spec.get("affinity") or {})
    apart = affinity["podAntiAffinity"] = dict(affinity.get("podAntiAffinity") or {})
    key = "requiredDuringSchedulingIgnoredDuringExecution"
    own = {"labelSelector": {"matchLabels": {LAUNCH_LABEL: name}}, "topologyKey": HOST_LABEL}
    apart[key] = [*(apart.get(key) or []), own]


def _stay(spec: dict[str, Any], among: Sequence[str]) -> None:
    """Keep the pods on the nodes of these names; each term of the template remains."""
    if not among:
        return
    node_affinity = dict(spec["affinity"].get("nodeAffinity") or {})
    key = "requiredDuringSchedulingIgnoredDuringExecution"
    terms = (node_affinity.get(key) or {}).get("nodeSelectorTerms") or [{}]
    node_affinity[key] = {
        "nodeSelectorTerms": [  # terms are alternatives, and each has at most one name
            {**term, "matchFields": [*(term.get("matchFields") or []), _named(node)]}
            for term in terms
            for node in among
        ]
    }
    spec["affinity"]["nodeAffinity"] = node_affinity


def _named(node: str) -> dict[str, Any]:
    return {"key": "metadata.name", "operator": "In", "values": [node]}
