"""A cluster that is played by processes of this machine, behind a kubectl of its own."""

from __future__ import annotations

import json
import os
import socket
import sys
from pathlib import Path

from ddp_perf.launch.engines.kubernetes import KubernetesEngine

_KUBECTL = Path(__file__).with_name("fake_kubectl.py")
TEMPLATE = {
    "kind": "PodTemplate",
    "template": {"spec": {"containers": [{"name": "rank", "image": "registry.example/train:1"}]}},
}


class EngineOnThisMachine(KubernetesEngine):
    """The names of pods lead nowhere on this machine."""

    def endpoint(self, node: str) -> str:
        assert super().endpoint(node).endswith(":29400")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            return f"127.0.0.1:{free.getsockname()[1]}"


class PlayedCluster:
    """What a test sees of the cluster, and sets of its faults (tests/fake_kubectl.py)."""

    def __init__(self, directory: Path, monkeypatch) -> None:
        self._directory = directory / "cluster"
        self._directory.mkdir()
        self.fail()
        programs = directory / "programs"
        programs.mkdir()
        image = {"kubectl": f'"{sys.executable}" -S "{_KUBECTL}"', "python": f'"{sys.executable}"'}
        for name, command in image.items():
            (programs / name).write_text(f'#!/bin/sh\nexec {command} "$@"\n')
            (programs / name).chmod(0o755)
        monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
        monkeypatch.setenv("FAKE_CLUSTER", str(self._directory))

    def fail(self, **faults) -> None:
        (self._directory / "faults.json").write_text(json.dumps(faults))

    @property
    def calls(self) -> list[str]:
        return (self._directory / "calls.txt").read_text().splitlines()

    @property
    def jobs(self) -> list[Path]:
        """Their directories, in the order in which they were created."""
        return sorted(self._directory.glob("ddp-perf-*"), key=lambda job: job.stat().st_ctime_ns)

    def manifest(self, kind: str, job: int = 0) -> dict:
        return json.loads((self.jobs[job] / f"{kind}.json").read_text())

    @property
    def left(self) -> list[str]:
        """The Jobs that nobody deleted."""
        return [each.name for each in self.jobs if not (each / "deleted").exists()]

    @property
    def running(self) -> list[str]:
        """The pods whose container runs."""
        files = self._directory.glob("ddp-perf-*/pod-*.json")
        return sorted(str(file) for file in files if '"running"' in file.read_text())
