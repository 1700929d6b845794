"""The commands that ask Slurm for its state, and the environment in which all of them run."""

from __future__ import annotations

import os
import pwd
import re
import subprocess

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
