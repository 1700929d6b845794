"""The job whose nodes the launches use: the one that pytest runs in, or one of its own."""

from __future__ import annotations

import os
import selectors
import subprocess
from collections.abc import Callable, Sequence

from ddp_perf.errors import LaunchError
from ddp_perf.launch.nodes.slurm_commands import ask, expanded, loss_of

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

    def check(self) -> None:
        """Raise LaunchError if the job of its own has ended."""
        if self._holder is not None and self._holder.poll() is not None:
            loss = loss_of(self.job) or f"job {self.job} ended"
            raise LaunchError(f"{loss}: its nodes are gone")

    def first(self, count: int) -> tuple[str, ...]:
        """Return the names of the first nodes. Raises LaunchError if there are fewer."""
        if count > len(self.nodes):
            raise LaunchError(
                f"job {self.job} of Slurm has {len(self.nodes)} nodes, and a launch needs {count}:"
                f" submit it with --nodes={count}"
            )
        return self.nodes[:count]

    def only(self, name: str) -> tuple[str, ...]:
        """Return the one name. Raises LaunchError if the job does not have the node."""
        if name not in self.nodes:
            raise LaunchError(
                f"job {self.job} of Slurm does not have node {name!r};"
                f" there are: {', '.join(self.nodes)}"
            )
        return (name,)

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
