"""kubectl, which reaches the cluster with the user's own context and credentials."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

from ddp_perf.errors import LaunchError

_REQUEST_S = 30  # for one answer of the cluster
_PROCESS_S = 90  # of a kubectl: a plugin that gets the credentials may hang


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
        """Create an object of a new name, and return the cluster's JSON of it."""
        return self._ask("create", "--filename=-", "--output=json", given=json.dumps(manifest))

    def pods(self, selector: str) -> str:
        """Return the pods with this label, as JSON."""
        return self._ask("get", "pods", f"--selector={selector}", "--output=json")

    def warnings(self, name: str) -> str:
        """Return the messages of the warnings about an object, the last one last."""
        return self._ask(
            "get",
            "events",
            f"--field-selector=involvedObject.name={name},type=Warning",
            "--sort-by=.lastTimestamp",
            '--output=jsonpath={range .items[*]}{.message}{"\\n"}{end}',
        )

    def log(self, pod: str, container: str) -> str:
        """Return what a container has printed."""
        return self._ask("logs", pod, f"--container={container}")

    def follow_log(self, pod: str, container: str, file: Path) -> subprocess.Popen[bytes]:
        """Write what a container prints into a file, until it ends."""
        with file.open("wb") as output:
            return subprocess.Popen(
                [*self._command("logs"), pod, f"--container={container}", "--follow"],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # the user's Ctrl-C ends the launch, and not the log
            )

    def delete_job(self, name: str) -> None:
        """Remove a Job with its pods, and with its Service, if it exists."""
        self._ask("delete", "job", name, "--ignore-not-found", "--wait=false")

    def _ask(self, *arguments: str, given: str = "") -> str:
        verb, *rest = arguments
        command = [*self._command(verb), f"--request-timeout={_REQUEST_S}s", *rest]
        try:
            done = subprocess.run(
                command,
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
            lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
            raise KubectlError(f"kubectl {verb}: {lines[-1]}")
        return done.stdout

    def _command(self, verb: str) -> list[str]:
        return [self._program, verb, *self._namespace]
