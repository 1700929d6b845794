"""Slurm: a launch is a job step with one process per node."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from ddp_perf.launch.nodes.engine import NodeEnd
from ddp_perf.launch.nodes.slurm_allocation import Allocation, allocate
from ddp_perf.launch.nodes.slurm_failures import failures_of
from ddp_perf.launch.nodes.slurm_step import Step


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
