"""The manifests of a launch: an indexed Job with one pod for each node, and the name of pod 0."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import Any

from ddp_perf.launch.nodes.engine import ENDPOINT_VARIABLE
from ddp_perf.launch.nodes.kubernetes.template import CONTAINER

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
