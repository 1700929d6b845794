"""A pod template in which ranks cannot run is refused before anything is created."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddp_perf.errors import ConfigError
from ddp_perf.launch.engines.pods import namespace_of, read_pod_template

EXAMPLE = Path("ci/templates/kubernetes/pod.yaml")


def test_the_example_is_a_template():
    template = read_pod_template(EXAMPLE)

    assert namespace_of(template) == "ddp-perf"


def test_a_template_may_leave_the_namespace_to_kubectl():
    assert namespace_of({"kind": "PodTemplate", "metadata": None}) is None


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (None, "No such file or directory"),
        ("a: [", "no YAML"),
        (
            "kind: Pod",
            "kind is not PodTemplate (apiVersion: v1,",
        ),
        ("kind: PodTemplate", "template.spec.containers is not a list of containers"),
        (
            "{kind: PodTemplate, template: {spec: {containers: [{name: train, image: a}]}}}",
            "0 containers are named 'rank', not one",
        ),
        (
            "{kind: PodTemplate, template: {spec: {containers: [{name: rank}]}}}",
            "the container 'rank' has no image",
        ),
        (
            "{kind: PodTemplate, template: {spec: {containers:"
            " [{name: rank, image: a, command: [x]}]}}}",
            "the container 'rank' has 'command', which ddp_perf sets; remove it",
        ),
    ],
)
def test_what_is_wrong_is_named(tmp_path, text, problem):
    path = tmp_path / "pod.yaml"
    if text is not None:
        path.write_text(text)

    with pytest.raises(ConfigError) as error:
        read_pod_template(path)

    assert problem in str(error.value)
    assert str(path) in str(error.value)
