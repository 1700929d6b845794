"""Cluster files: the nodes, and how ranks are started on them, in YAML."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from ddp_perf.config.yaml_file import describe_error, read_yaml
from ddp_perf.core.environment import Cluster
from ddp_perf.errors import ConfigError

# Arguments of srun by which a server gets its node and its streams: a further one would break it.
_STREAMS = ("--output", "--error", "--input", "--pty")
_OURS = ("--jobid", "--nodelist", "--nodes", "--ntasks", *_STREAMS)
_OURS_SHORT = ("-N", "-n", "-w", "-o", "-e", "-i")


def read_cluster_file(
    path: Path, environ: Mapping[str, str] = os.environ, *, launcher: str | None = None
) -> Cluster:
    """Return what a cluster file describes. Raises ConfigError with the file and the key.

    ``nnodes`` is by default the number of ``hosts``, or of the nodes of the Slurm job that this
    process is in, if the ``launcher`` of the command line, or else that of the file, is Slurm. A
    pod template is sought beside the file.
    """
    try:
        fields = read_yaml(path)
        try:
            cluster = msgspec.convert(_with_nodes(fields, environ, launcher), Cluster)
        except msgspec.ValidationError as error:
            raise ConfigError(describe_error(error, Cluster, fields)) from None
        _check(cluster)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
    if cluster.pod_template is not None:
        template = str(path.parent / cluster.pod_template)
        return msgspec.structs.replace(cluster, pod_template=template)
    return cluster


def check_no_commands(path: Path, cluster: Cluster) -> None:
    """Raise ConfigError for a key that names a command, or an argument of one."""
    for field in ("node_shell", "interpreter", "pod_template", "srun_args", "salloc_args"):
        if getattr(cluster, field) != getattr(Cluster(), field):
            key = "python" if field == "interpreter" else field
            raise ConfigError(
                f"{path}: {key}: --ddp-no-user-code refuses it, since it decides what runs on the"
                " nodes; leave the key or the option out"
            )


def _with_nodes(fields: Any, environ: Mapping[str, str], launcher: str | None) -> Any:
    if not isinstance(fields, dict) or "nnodes" in fields:
        return fields
    hosts = fields.get("hosts")
    nodes = len(hosts) if isinstance(hosts, list) else 0
    if (launcher or fields.get("launcher")) == "slurm":
        nodes = int(environ.get("SLURM_JOB_NUM_NODES", "1"))
    return {**fields, "nnodes": nodes or 1}


def _check(cluster: Cluster) -> None:
    """Raise ConfigError for a value that no session can use."""
    for key, number in (("nnodes", cluster.nodes), ("nproc_per_node", cluster.ranks_per_node)):
        if number is not None and number < 1:
            raise ConfigError(f"{key}: {number} leaves nothing to run; write 1 or more")
    if len(set(cluster.hosts)) < len(cluster.hosts):
        raise ConfigError("hosts: one is there twice; write each once")
    if not _is_shell(cluster.node_shell):
        raise ConfigError(
            f"node_shell: {cluster.node_shell!r} is not a command with {{node}} in the place of a"
            " host, as in 'ssh {node}'"
        )
    host, _, port = (cluster.endpoint or "host:1").rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 2**16:
        raise ConfigError(
            f"rdzv_endpoint: {cluster.endpoint!r} is not of the form HOST:PORT, as in node1:29400"
        )
    for argument in cluster.srun_args:
        name = argument.partition("=")[0] if argument.startswith("--") else argument[:2]
        if name in (*_OURS, *_OURS_SHORT):
            raise ConfigError(f"srun_args: each launch sets {name}; remove it")


def _is_shell(text: str) -> bool:
    try:
        words = shlex.split(text.format(node="host"))
    except (ValueError, KeyError, IndexError, AttributeError):
        return False
    return bool(words) and "{node}" in text
