"""The failure of each node of a job step, from the lines of srun and the state of the nodes."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ddp_perf.errors import LaunchError
from ddp_perf.launch.nodes.slurm_commands import expanded, loss_of, trouble_of
from ddp_perf.launch.nodes.slurm_step import Step

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
