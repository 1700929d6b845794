"""A job step of Slurm: the same command once on each of its nodes, until all have ended."""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from multiprocessing.connection import wait
from pathlib import Path

from ddp_perf.errors import LaunchError
from ddp_perf.launch.environment import package_alone, package_directory, package_path
from ddp_perf.launch.nodes.engine import END_WITH_STDIN, ENDPOINT_VARIABLE, GOODBYE_S, GRACE_S
from ddp_perf.launch.nodes.slurm_commands import address_of, step_environment

_TICK_S = 1.0
_KILL_S = 60.0  # for Slurm to end what is left: KillWait of slurm.conf is 30 s by default
_FAILED = re.compile(r"^srun: error: ", re.MULTILINE)
_PORTS = range(20_000, 30_000)  # below those that Linux gives to outgoing connections


class Step:
    """An srun and its processes, which end with it.

    Their standard input stays open until the step is to end. srun closes it on all nodes also if
    this process is killed.
    """

    def __init__(
        self,
        job: str,
        nodes: Sequence[str],
        command: Sequence[str],
        directory: Path,
        further: Sequence[str] = (),
    ) -> None:
        self.nodes = tuple(nodes)
        self.directory = directory
        self.overdue: float | None = None  # seconds after which it was ended
        for number in range(len(nodes)):  # a network disk would keep in mind that it is missing
            self._file(number, "out").touch()
        reading, writing = os.pipe()
        self._input: int | None = writing
        try:
            with (directory / "srun.err").open("wb") as messages:
                self._process = subprocess.Popen(
                    [*_srun(job, nodes, directory), *further, *command, END_WITH_STDIN],
                    stdin=reading,
                    stdout=subprocess.DEVNULL,
                    stderr=messages,
                    env=_environment(nodes, command[0], directory),
                    start_new_session=True,  # the driver handles Ctrl-C
                )
        except FileNotFoundError:
            os.close(writing)
            raise LaunchError(
                "srun is not on PATH: run pytest on a machine of the Slurm cluster"
            ) from None
        finally:
            os.close(reading)
        self._sentinel = os.pidfd_open(self._process.pid)

    def wait(self, deadline_s: float) -> None:
        """Wait until all have ended, or one has failed a while ago, or the deadline is over."""
        deadline = time.monotonic() + deadline_s
        failed = False
        while (code := self.code) is None:
            left = deadline - time.monotonic()
            if left <= 0:
                self.overdue = None if failed else deadline_s
                return
            wait([self._sentinel], min(left, _TICK_S))
            if code is None and not failed and any(map(_FAILED.match, self.messages)):
                failed = True
                deadline = min(deadline, time.monotonic() + GRACE_S)

    def end(self) -> None:
        """End what still runs, gently first."""
        if self._input is None:
            return
        os.close(self._input)
        self._input = None
        if not wait([self._sentinel], GOODBYE_S):
            self._process.terminate()
            if not wait([self._sentinel], _KILL_S):
                self._process.kill()
        self._process.wait()
        os.close(self._sentinel)

    @property
    def code(self) -> int | None:
        """The exit code of srun; None: it runs."""
        return self._process.poll()

    @property
    def messages(self) -> list[str]:
        """The lines of srun."""
        return _text(self.directory / "srun.err").splitlines()

    def output(self, node: int) -> str:
        """Return what the process of a node printed on stdout; "" if it is not there."""
        return _text(self._file(node, "out"))

    def errors(self, node: int) -> str:
        """Return what the process of a node, or Slurm for it, printed on stderr."""
        return _text(self._file(node, "err"))

    def _file(self, node: int, kind: str) -> Path:
        return self.directory / f"{node}.{kind}"


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return ""


def _srun(job: str, nodes: Sequence[str], directory: Path) -> list[str]:
    """Return a step that has all that the job has on these nodes: its ranks pin themselves."""
    return [
        *("srun", f"--jobid={job}", "--job-name=ddp-perf", f"--nodelist={','.join(nodes)}"),
        *(f"--nodes={len(nodes)}", f"--ntasks={len(nodes)}", "--ntasks-per-node=1"),
        *("--overlap", "--mem=0", "--cpu-bind=none", "--gpu-bind=none", "--mpi=none"),
        # A node that fails may not be the cause: the others get time to fail, too.
        *("--kill-on-bad-exit=0", "--wait=0", "--export=ALL", "--input=all"),
        f"--output={directory}/%t.out",
        f"--error={directory}/%t.err",
    ]


def _environment(nodes: Sequence[str], interpreter: str, directory: Path) -> dict[str, str]:
    endpoint, package = {}, None
    if interpreter != sys.executable:  # in a container, say, which has packages of its own
        package = package_alone(package_directory(), directory)
    if len(nodes) > 1:
        endpoint[ENDPOINT_VARIABLE] = f"{address_of(nodes[0])}:{random.choice(_PORTS)}"
    return {**step_environment(), "PYTHONPATH": package_path(os.environ, package), **endpoint}
