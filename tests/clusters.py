"""A cluster that is played by processes of this machine, behind a kubectl of its own."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

_KUBECTL = Path(__file__).with_name("fake_kubectl.py")


class PlayedCluster:
    """What a test sees of the cluster, and sets of its faults (tests/fake_kubectl.py)."""

    def __init__(self, directory: Path, monkeypatch) -> None:
        self._directory = directory / "cluster"
        self._directory.mkdir()
        self.fail()
        programs = directory / "programs"
        programs.mkdir()
        kubectl = programs / "kubectl"
        kubectl.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "{_KUBECTL}" "$@"\n')
        kubectl.chmod(0o755)
        monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
        monkeypatch.setenv("FAKE_CLUSTER", str(self._directory))

    def fail(self, **faults) -> None:
        (self._directory / "faults.json").write_text(json.dumps(faults))

    @property
    def calls(self) -> list[str]:
        return (self._directory / "calls.txt").read_text().splitlines()

    @property
    def launches(self) -> list[Path]:
        return sorted(self._directory.glob("ddp-perf-*"))

    def manifest(self, kind: str, launch: int = 0) -> dict:
        return json.loads((self.launches[launch] / f"{kind}.json").read_text())

    @property
    def left(self) -> list[str]:
        """The launches that nobody deleted."""
        return [each.name for each in self.launches if not (each / "deleted").exists()]
