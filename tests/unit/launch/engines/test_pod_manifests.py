"""The manifests of a session: valid, and with what the template states."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from ddp_perf.launch.engines.pods import HOLDER, render_job, render_service
from tests.kubernetes_schema import problems

EXAMPLE = Path("ci/templates/kubernetes/pod.yaml")
BARE: dict[str, Any] = {
    "template": {"spec": {"containers": [{"name": "rank", "image": "train:1"}]}}
}


def job(template=BARE, *, nodes=2, only=None):
    return render_job("ddp-perf-1-0", template, nodes=nodes, only=only)


def pod_of(manifest):
    return manifest["spec"]["template"]["spec"]


def rank_of(manifest):
    [container] = [each for each in pod_of(manifest)["containers"] if each["name"] == "rank"]
    return container


@pytest.mark.parametrize("only", [None, "a"])
@pytest.mark.parametrize("template", [BARE, yaml.safe_load(EXAMPLE.read_text(encoding="utf-8"))])
def test_every_manifest_is_valid(template, only):
    assert problems(job(template, only=only)) == []
    assert problems(render_service("ddp-perf-1-0", "1234")) == []


def test_the_job_starts_each_pod_once():
    spec = job(nodes=4)["spec"]

    del spec["template"]
    assert spec == {
        "completionMode": "Indexed",
        "completions": 4,
        "parallelism": 4,
        "backoffLimitPerIndex": 0,
        "activeDeadlineSeconds": 86400,
        "ttlSecondsAfterFinished": 600,
    }


def test_the_network_policy_lets_the_pods_of_sessions_reach_each_other_alone():
    policy = yaml.safe_load(EXAMPLE.with_name("network_policy.yaml").read_text(encoding="utf-8"))
    template = yaml.safe_load(EXAMPLE.read_text(encoding="utf-8"))
    labels = job(template)["spec"]["template"]["metadata"]["labels"]

    assert policy["metadata"]["namespace"] == template["metadata"]["namespace"]
    [rule] = policy["spec"]["ingress"]
    for selector in (
        policy["spec"]["podSelector"],
        *(each["podSelector"] for each in rule["from"]),
    ):
        assert selector["matchLabels"].items() <= labels.items()
        assert "ddp-perf" in selector["matchLabels"].values()


def test_the_service_names_the_pods():
    manifest, service = job(), render_service("ddp-perf-1-0", "1234")

    labels = manifest["spec"]["template"]["metadata"]["labels"]
    assert pod_of(manifest)["subdomain"] == service["metadata"]["name"]
    assert service["spec"]["selector"].items() <= labels.items()
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["publishNotReadyAddresses"] is True


def test_each_pod_has_a_host_of_its_own():
    manifest = job()

    [term] = pod_of(manifest)["affinity"]["podAntiAffinity"][
        "requiredDuringSchedulingIgnoredDuringExecution"
    ]
    labels = manifest["spec"]["template"]["metadata"]["labels"]
    assert term["topologyKey"] == "kubernetes.io/hostname"
    assert term["labelSelector"]["matchLabels"].items() <= labels.items()


def test_the_rank_container_gets_the_holder_and_keeps_the_rest():
    template = copy.deepcopy(BARE)
    template["template"]["spec"]["containers"] = [
        {"name": "sidecar", "image": "proxy:1"},
        {"name": "rank", "image": "train:1", "env": [{"name": "NCCL_IB_HCA", "value": "mlx5"}]},
    ]
    manifest = job(template)

    assert pod_of(manifest)["restartPolicy"] == "Never"
    assert pod_of(manifest)["containers"][0] == {"name": "sidecar", "image": "proxy:1"}
    assert rank_of(manifest) == {
        "name": "rank",
        "image": "train:1",
        "env": [{"name": "NCCL_IB_HCA", "value": "mlx5"}],
        "command": ["python", "-c", HOLDER, "900"],
        "stdin": True,
        "stdinOnce": True,
        "tty": False,
        "volumeMounts": [{"name": "ddp-perf-shm", "mountPath": "/dev/shm"}],
    }
    assert pod_of(manifest)["volumes"] == [
        {"name": "ddp-perf-shm", "emptyDir": {"medium": "Memory"}}
    ]


def test_a_template_with_a_shared_memory_keeps_it():
    template = copy.deepcopy(BARE)
    mount = {"name": "mine", "mountPath": "/dev/shm"}
    template["template"]["spec"]["containers"][0]["volumeMounts"] = [mount]

    manifest = job(template)

    assert rank_of(manifest)["volumeMounts"] == [mount]
    assert "volumes" not in pod_of(manifest)


def test_labels_and_affinity_of_the_template_remain():
    template = copy.deepcopy(BARE)
    terms: list[dict[str, Any]] = [
        {"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]}
        for zone in ("x", "y")
    ]
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    template["template"]["metadata"] = {"labels": {"kueue.x-k8s.io/queue-name": "perf"}}
    template["template"]["spec"]["affinity"] = {
        "nodeAffinity": {required: {"nodeSelectorTerms": terms}}
    }

    manifest = job(template, only="a")

    assert manifest["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "perf"
    assert pod_of(manifest)["affinity"]["nodeAffinity"][required]["nodeSelectorTerms"] == [
        {**term, "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a"]}]}
        for term in terms
    ]


def test_the_template_itself_is_not_changed():
    before = copy.deepcopy(BARE)

    job(only="a")

    assert before == BARE
