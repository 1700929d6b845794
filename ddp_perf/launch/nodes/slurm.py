"""Slurm: a launch is a job step with one process per node, in a job that exists or is allocated."""

from __future__ import annotations

import os
import pwd
import random
import re
import selectors
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from multiprocessing.connection import wait
from pathlib import Path

from ddp_perf.errors import LaunchError
from ddp_perf.launch.launcher import package_alone, package_directory, package_path
from ddp_perf.launch.nodes.engine import (
    END_WITH_STDIN,
    ENDPOINT_VARIABLE,
    GOODBYE_S,
    GRACE_S,
    NodeEnd,
)

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


def trouble_of(node: str) -> str | None:
    """Return that a node is down or does not answer, with Slurm's reason; None: it works."""
    lines = ask("sinfo", "--noheader", f"--nodes={node}", "--format=%T|%E").splitlines()
    state, _, reason = lines[0].partition("|") if lines else ("", "", "")  # a line per partition
    if state.startswith("down"):
        return f"the node is down: {reason}"
    return "the node does not answer Slurm" if state.endswith("*") else None


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


# A job step of Slurm: the same command once on each of its nodes, until all have ended.


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
        return _file_text(self.directory / "srun.err").splitlines()

    def output(self, node: int) -> str:
        """Return what the process of a node printed on stdout; "" if it is not there."""
        return _file_text(self._file(node, "out"))

    def errors(self, node: int) -> str:
        """Return what the process of a node, or Slurm for it, printed on stderr."""
        return _file_text(self._file(node, "err"))

    def _file(self, node: int, kind: str) -> Path:
        return self.directory / f"{node}.{kind}"


def _file_text(path: Path) -> str:
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


# The failure of each node of a job step, from the lines of srun and the state of the nodes.


_TASK = re.compile(r"srun: error: (\S+): tasks? [\d,-]+: (.+)")
_NODE = re.compile(r"srun: error: Node failure on (\S+)")
_GONE = re.compile(r"srun: error: Aborting, .*missing step on node (\d+)")
_LAUNCH = re.compile(r"srun: error: task (\d+) launch failed: (.+)")
_ABORT = re.compile(r"srun: (.*Terminating StepId|Job step aborted|[Ff]orc(e|ing) )")
_NO_FILE = "Slurmd could not connect IO"
_BY_SLURM = ("Killed", "Terminated")  # how a process ends when Slurm ends its step


def failures_of(step: Step, job: str) -> dict[str, str]:
    """Return the failure of each node that has one; nothing if all processes ended well.

    Raises LaunchError if Slurm refused the step.
    """
    found = failures_in(step.messages, step.nodes, step.directory)
    silent = [
        name
        for number, name in enumerate(step.nodes)
        if name not in found and not step.output(number)
    ]
    if not (found or silent or step.code or step.overdue):
        return {}
    down = {name: text for name in step.nodes if (text := trouble_of(name))}
    loss = None if down else loss_of(job)
    if step.overdue:
        return dict.fromkeys(step.nodes, f"not ended after {step.overdue:g} s") | down
    if loss:
        return dict.fromkeys(step.nodes, loss)
    if down:
        first = next(iter(down))
        named = failures_in(step.messages, step.nodes, step.directory, down=first)
        return {**dict.fromkeys(silent, _because(first)), **named, **down}
    if step.code and len(silent) == len(step.nodes):
        raise LaunchError(f"Slurm refused a step of job {job}: {_last(step.messages)}")
    return {**dict.fromkeys(silent, lost_output(step.directory)), **found}


def failures_in(
    messages: Iterable[str], nodes: tuple[str, ...], directory: object, *, down: str | None = None
) -> dict[str, str]:
    """Return the failures that the lines of srun name, by node.

    srun may end the processes before it names the node for which it does; ``down`` is the node
    that Slurm itself states to be down, if there is one.
    """
    found: dict[str, str] = {}
    consequence: str | None = None  # of what srun has ended the processes for
    for line in messages:
        if consequence is None and _ABORT.match(line):
            first = next(iter(found), down)
            consequence = _because(first) if first else "its step was cancelled"
        for name, text in _named(line, nodes):
            if text in _BY_SLURM and consequence is not None:
                text = consequence
            elif text == _NO_FILE:
                text = lost_output(directory)
            found.setdefault(name, text)
    return found


def _because(node: str) -> str:
    return f"ended because {node} failed"


def lost_output(directory: object) -> str:
    """Return what to check if the output of a node is missing."""
    return f"its output is lost: is {directory} on a file system that all nodes share?"


def _named(line: str, nodes: tuple[str, ...]) -> list[tuple[str, str]]:
    """Return each node that a line of srun names, with what it states."""
    if task := _TASK.match(line):
        text = task[2].removeprefix("Exited with ")
        return [(name, text) for name in expanded(task[1])]
    if node := _NODE.match(line):
        return [(name, "the node failed") for name in expanded(node[1])]
    if gone := _GONE.match(line):
        return [(nodes[int(gone[1])], "its slurmstepd has gone")]
    if launch := _LAUNCH.match(line):
        return [(nodes[int(launch[1])], launch[2])]
    return []


def _last(messages: list[str]) -> str:
    """Return the last line of srun without its name."""
    line = messages[-1] if messages else "it printed nothing"
    return line.removeprefix("srun: ").removeprefix("error: ")


# Slurm: a launch is a job step with one process per node.


class SlurmEngine:
    """Launches in the job that pytest runs in, or in one job of its own for the whole session.

    ``directory`` must be on a file system that all nodes share: each process writes its output
    there. The output of a launch that failed is kept. ``srun_args`` and ``salloc_args`` are those
    of the user's site, as for containers.
    """

    node_variable = "SLURM_NODEID"

    def __init__(
        self,
        *,
        nodes: int,
        gpus_per_node: int,
        directory: Path,
        srun_args: Sequence[str] = (),
        salloc_args: Sequence[str] = (),
        on_wait: Callable[[str], None],
    ) -> None:
        self._nodes = nodes  # of a job of its own
        self._gpus_per_node = gpus_per_node
        self._directory = directory.absolute()
        self._srun_args = tuple(srun_args)
        self._salloc_args = tuple(salloc_args)
        self._on_wait = on_wait
        self._allocation: Allocation | None = None

    def allocation(self) -> Allocation:
        """Return the job and its nodes; the first call may wait in the queue."""
        if self._allocation is None:
            self._allocation = allocate(
                self._nodes, self._gpus_per_node, self._salloc_args, on_wait=self._on_wait
            )
        self._allocation.check()
        return self._allocation

    @property
    def nodes(self) -> tuple[str, ...]:
        """The names of the job's nodes; the first call may wait in the queue."""
        return self.allocation().first(self._nodes)

    def run(
        self,
        command: Sequence[str],
        *,
        nodes: int,
        only: str | None,
        deadline_s: float,
    ) -> tuple[NodeEnd, ...]:
        """Run the command in a job step, and return the end of each node's process."""
        allocation = self.allocation()
        names = allocation.first(nodes) if only is None else allocation.only(only)
        self._directory.mkdir(parents=True, exist_ok=True)
        directory = Path(tempfile.mkdtemp(prefix=f"job-{allocation.job}-", dir=self._directory))
        step = Step(allocation.job, names, command, directory, self._srun_args)
        try:
            step.wait(deadline_s)
        finally:
            step.end()
        failures = failures_of(step, allocation.job)
        ends = tuple(
            NodeEnd(
                node=name,
                output=step.errors(number) + step.output(number),
                failure=failures.get(name),
            )
            for number, name in enumerate(names)
        )
        if not failures:
            # A network disk may still have files of it; the launch is worth more.
            shutil.rmtree(directory, ignore_errors=True)
        return ends

    def close(self) -> None:
        """Give back the job, unless pytest runs in it."""
        if self._allocation is not None:
            self._allocation.close()
            self._allocation = None
