"""A git repository whose commits edit a workload: one of them computes more rows."""

from __future__ import annotations

import subprocess
from pathlib import Path

import msgspec

CASE = "perf_workload.build-none-fp32-ws1-b8"
TWO_RANKS = "perf_workload.build-ddp-fp32-ws2-b8"
SUITE = """
suite: rows
tier: cpu
workload: perf_workload:build
strategy: {strategy}
precision: fp32
world_sizes: [{ranks}]
batch_sizes: [8]
steps: {steps}
warmup: {warmup}
launches: 3
"""
WORKLOAD = '''"""Products of {rows} rows: edited {edit} times."""

import torch
from torch import nn

from ddp_perf.workloads.workload import BuildContext, Workload
{extra}
ROWS = {rows}


def build(context: BuildContext) -> Workload:
    layers = [nn.Sequential(nn.Linear({width}, {width}), nn.Tanh()) for _ in range(3)]
    return Workload(
        model=nn.Sequential(*layers).to(context.device),
        batch=(torch.randn(ROWS, {width}, device=context.device),),
        loss=lambda module, batch: module(batch[0]).square().mean(),
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=1e-4),
    )
'''


class RowsRepository(msgspec.Struct, frozen=True, kw_only=True):
    """``commits`` after good, of which ``slow`` computes ``more`` times the rows.

    Commits that are not ``touching`` edit a file that the case does not read.
    """

    commits: int
    slow: int
    more: float
    broken: frozenset[int] = frozenset()  # these do not import
    touching: frozenset[int] | None = None  # None: all of them
    ranks: int = 1
    rows: int = 64
    width: int = 64
    steps: int = 8
    warmup: int = 2

    def write(self, directory: Path) -> None:
        """Make the repository. Good is tagged ``good``, and bad is HEAD of ``main``."""
        _git(directory, "init", "-q", "-b", "main")
        (directory / "bench_configs").mkdir()
        suite = SUITE.format(
            strategy="none" if self.ranks == 1 else "ddp",
            ranks=self.ranks,
            steps=self.steps,
            warmup=self.warmup,
        )
        (directory / "bench_configs" / "rows.yaml").write_text(suite, encoding="utf-8")
        for place in range(self.commits + 1):
            touches = self.touching is None or place in {0, *self.touching}
            edited = "perf_workload.py" if touches else "tools.py"
            (directory / edited).write_text(self._source(place), encoding="utf-8")
            _git(directory, "add", "-A")
            _git(directory, "commit", "-q", "-m", f"Edit {place} of the workload")
            if not place:
                _git(directory, "tag", "good")

    def _source(self, place: int) -> str:
        rows = round(self.rows * (self.more if place >= self.slow else 1))
        extra = "import a_module_that_is_missing\n" if place in self.broken else ""
        return WORKLOAD.format(rows=rows, width=self.width, edit=place, extra=extra)


def _git(directory: Path, *arguments: str) -> None:
    who = ["-c", "user.name=Ada Lovelace", "-c", "user.email=ada@example.org"]
    command = ["git", "-C", str(directory), *who, "-c", "commit.gpgsign=false", *arguments]
    subprocess.run(command, check=True)
