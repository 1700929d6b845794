"""The pod template: what a user states of the cluster, in one file, before the first launch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from ddp_perf.errors import ConfigError

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
