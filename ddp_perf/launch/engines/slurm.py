"""The engine of Slurm: a job step for each server, in a job that exists or is allocated."""

from __future__ import annotations

import os
import pwd
import random
import re
import selectors
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from ddp_perf.core.case import Tier
from ddp_perf.errors import LaunchError
from ddp_perf.launch.engine import Transport, server_words
from ddp_perf.launch.interpreter import package_directory

# The commands that ask Slurm for its state, and the environment in which all of them run.


# All others that begin so describe what the job asked for. A step would ask for the same again,
# and would get less than the job has.
_KEPT = {
    "SLURM_CONF",
    "SLURM_CONF_SERVER",
    "SLURM_JWT",
    "SLURM_CLUSTERS",
    "SLURM_WORKING_CLUSTER",
}
_PATIENCE_S = 30.0  # for an answer of a busy controller


def step_environment() -> dict[str, str]:
    """Return the environment without the variables that would shrink a step of the job."""
    return {
        name: value
        for name, value in os.environ.items()
        if name in _KEPT or not name.startswith(("SLURM_", "SRUN_"))
    }


def ask(*command: str) -> str:
    """Return what a command of Slurm prints; "" if it fails, since the state is then unknown."""
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=_PATIENCE_S,
            env=step_environment(),
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def expanded(nodes: str) -> tuple[str, ...]:
    """Return the names in a list of nodes such as "node[1-2]", in the order of the job."""
    return tuple(ask("scontrol", "show", "hostnames", nodes).split()) or (nodes,)


def address_of(node: str) -> str:
    """Return the address by which Slurm reaches a node: its name, where nothing else is set."""
    found = re.search(r"\bNodeAddr=(\S+)", ask("scontrol", "show", "node", node))
    return found[1] if found else node


def loss_of(job: str) -> str | None:
    """Return how a job ended, as a part of a sentence; None: it runs, or its state is unknown."""
    state, _, reason = ask(
        *("squeue", "--noheader", "--states=all", f"--jobs={job}", "--format=%T|%r")
    ).partition("|")
    if state in ("", "RUNNING"):
        return None
    if reason == "TimeLimit":
        return f"job {job} reached its time limit"
    if state in ("CANCELLED", "COMPLETING"):
        return f"job {job} was cancelled{_canceller(job)}"
    return f"job {job} ended ({state}, {reason})"


def _canceller(job: str) -> str:
    """Return "by NAME", if the cluster keeps accounts."""
    state = ask("sacct", "--noheader", "--allocations", "--parsable2", f"--jobs={job}", "-oState")
    user = state.removeprefix("CANCELLED by ")
    if not user.isdecimal():
        return ""
    try:
        return f" by {pwd.getpwuid(int(user)).pw_name}"
    except KeyError:
        return f" by user {user}"


def troubles(nodes: Sequence[str]) -> dict[str, str]:
    """Return by node that it is down, with Slurm's reason, or does not answer."""
    listed = ask(
        *("sinfo", "--noheader", "--Node", f"--nodes={','.join(nodes)}", "--format=%N|%T|%E")
    )
    found = {}
    for line in listed.splitlines():  # one for each partition of a node
        node, state, reason = line.split("|", 2)
        if state.startswith("down"):
            found[node] = f"the node is down: {reason}"
        elif state.endswith("*"):
            found[node] = "the node does not answer Slurm"
    return found


# The job whose nodes the launches use: the one that pytest runs in, or one of its own.


_ASK_S = 10.0  # between two questions for the reason of the wait
_RELEASE_S = 30.0


class Allocation:
    """A job of Slurm and its nodes. ``holder``: the salloc that holds it; None: it is given.

    The holder's command reads its standard input, and ends with it. So Slurm gets the nodes back
    however this process ends.
    """

    def __init__(
        self, job: str, nodes: tuple[str, ...], holder: subprocess.Popen[str] | None = None
    ) -> None:
        self.job = job
        self.nodes = nodes
        self._holder = holder

    def first(self, count: int) -> tuple[str, ...]:
        """Return the names of the first nodes.

        Raises LaunchError if there are fewer, or if the job of its own has ended.
        """
        if self._holder is not None and self._holder.poll() is not None:
            loss = loss_of(self.job) or f"job {self.job} ended"
            if down := troubles(self.nodes):
                loss = f"job {self.job} ended, since {' and '.join(down)} failed"
            raise LaunchError(f"{loss}: its nodes are gone")
        if count > len(self.nodes):
            raise LaunchError(
                f"job {self.job} of Slurm has {len(self.nodes)} nodes, and the cluster file needs"
                f" {count}: submit it with --nodes={count}"
            )
        return self.nodes[:count]

    def close(self) -> None:
        """Give the nodes back, unless they were given. A second call does nothing."""
        if self._holder is not None:
            holder, self._holder = self._holder, None
            _release(holder)


def allocate(
    nodes: int, gpus_per_node: int, further: Sequence[str] = (), *, on_wait: Callable[[str], None]
) -> Allocation:
    """Return the allocation of this process, or a new one of ``nodes`` whole nodes.

    Slurm's queue decides how long that takes; SALLOC_PARTITION, SALLOC_ACCOUNT and the other
    variables of salloc hold, and the ``further`` arguments. ``on_wait`` receives the number of the
    job and why it waits. Raises LaunchError if Slurm refuses it.
    """
    job, names = os.environ.get("SLURM_JOB_ID"), os.environ.get("SLURM_JOB_NODELIST")
    if job and names:
        return Allocation(job, expanded(names))
    holder = _salloc(nodes, gpus_per_node, further)
    try:
        answer = _granted(holder, on_wait)
    except BaseException:  # also Ctrl-C in the queue, where salloc does not read its input
        holder.terminate()
        _release(holder)
        raise
    job, names = answer.split()
    return Allocation(job, expanded(names), holder)


def _salloc(nodes: int, gpus_per_node: int, further: Sequence[str]) -> subprocess.Popen[str]:
    gpus = [f"--gpus-per-node={gpus_per_node}"] if gpus_per_node else []
    try:
        return subprocess.Popen(
            [
                *("salloc", f"--nodes={nodes}", "--exclusive", *gpus, "--job-name=ddp-perf"),
                *further,
                "--kill-command",  # the end of the job is then the end of salloc
                *("sh", "-c", 'echo "$SLURM_JOB_ID $SLURM_JOB_NODELIST"; exec cat'),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,  # a Ctrl-C reaches this process first, which then ends it
        )
    except FileNotFoundError:
        raise LaunchError(
            "salloc is not on PATH: run pytest on a machine of the Slurm cluster"
        ) from None


def _granted(holder: subprocess.Popen[str], on_wait: Callable[[str], None]) -> str:
    """Return the line of the holder's command, which runs as soon as the job has its nodes."""
    assert holder.stdout is not None
    assert holder.stderr is not None
    job, problem, reported = "", "it printed nothing", ""
    with selectors.DefaultSelector() as selector:
        selector.register(holder.stdout, selectors.EVENT_READ)
        selector.register(holder.stderr, selectors.EVENT_READ)
        while True:
            ready = [key.fileobj for key, _ in selector.select(_ASK_S)]
            if holder.stdout in ready:
                if answer := holder.stdout.readline().strip():
                    return answer
                problem = [problem, *map(_text, holder.stderr.read().splitlines())][-1]
                raise LaunchError(f"Slurm gives no nodes: {problem}")
            if holder.stderr in ready and (line := holder.stderr.readline().strip()):
                problem = _text(line)
                job = line.rpartition(" ")[2] if "Pending job allocation" in line else job
            elif holder.stderr in ready:
                selector.unregister(holder.stderr)
            reason = job and ask("squeue", "--noheader", f"--jobs={job}", "--format=%r")
            if reason not in ("", "None", reported):
                reported = reason
                on_wait(f"job {job} waits in Slurm's queue: {reason}")


def _text(line: str) -> str:
    return line.removeprefix("salloc: ").removeprefix("error: ")


def _release(holder: subprocess.Popen[str]) -> None:
    """End the input of the holder's command, and with it the job."""
    try:
        holder.communicate(timeout=_RELEASE_S)
    except subprocess.TimeoutExpired:  # the controller does not answer
        holder.kill()
        holder.communicate()


# The engine.


_PORTS = range(20_000, 30_000)  # below those that Linux gives to outgoing connections


class SlurmEngine:
    """Servers in the job that pytest runs in, or in one job of its own for the whole session.

    ``nodes`` and ``gpus_per_node`` are those of a job of its own. ``interpreter`` is the Python of
    the nodes. ``srun_args`` and ``salloc_args`` are those of the user's site, as for containers.
    """

    def __init__(
        self,
        *,
        nodes: int,
        gpus_per_node: int,
        interpreter: str = sys.executable,
        srun_args: Sequence[str] = (),
        salloc_args: Sequence[str] = (),
        on_wait: Callable[[str], None],
    ) -> None:
        self.environ: Mapping[str, str] = step_environment()
        self._nodes = nodes
        self._gpus_per_node = gpus_per_node
        self._interpreter = interpreter
        self._srun_args = tuple(srun_args)
        self._salloc_args = tuple(salloc_args)
        self._on_wait = on_wait
        self._allocation: Allocation | None = None

    @property
    def allocation(self) -> Allocation:
        """The job and its nodes; the first call may wait in the queue."""
        if self._allocation is None:
            self._allocation = allocate(
                self._nodes, self._gpus_per_node, self._salloc_args, on_wait=self._on_wait
            )
        return self._allocation

    @property
    def nodes(self) -> tuple[str, ...]:
        return self.allocation.first(self._nodes)

    def transport(self, node: str, tier: Tier, scratch: Path) -> Transport:
        if shutil.which("srun") is None:
            raise LaunchError("srun is not on PATH: run pytest on a machine of the Slurm cluster")
        package = package_directory()
        return Transport(
            who=f"the server on {node} (srun …)",
            words=[
                # It has all that the job has on the node: ranks pin themselves.
                *("srun", f"--jobid={self.allocation.job}", "--job-name=ddp-perf"),
                *(f"--nodelist={node}", "--nodes=1", "--ntasks=1", "--overlap", "--mem=0"),
                *("--cpu-bind=none", "--gpu-bind=none", "--mpi=none", *self._srun_args),
                *server_words(self._interpreter, package),
            ],
            environ=self.environ,
            remedy=f"{node} needs {package}/ddp_perf at this path: share it, or mount it there",
        )

    def endpoint(self, node: str) -> str:
        return f"{address_of(node)}:{random.choice(_PORTS)}"

    def loss(self, node: str) -> str | None:
        if down := troubles(self.allocation.nodes):
            return down.get(node)  # another node that is down has ended the job
        return loss_of(self.allocation.job)

    def close(self) -> None:
        """Give back the job, unless pytest runs in it."""
        if self._allocation is not None:
            self._allocation.close()
            self._allocation = None
