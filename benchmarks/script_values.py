"""A real training script: where it is from, what makes it tiny, an edit that makes it slower."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from ddp_perf.core.verdict import CauseKind

STEPS, WARMUP, LAUNCHES = 20, 3, 3
TOLERANCES = {"step_time": 0.1, "tail": None, "efficiency": None, "cpu_time": 0.1}


class Edit(msgspec.Struct, frozen=True, kw_only=True):
    """A line, once in a file of the script's folder, and the lines that replace it."""

    file: str
    line: str
    becomes: str

    def make(self, directory: Path) -> None:
        """Edit the file. Raises SystemExit if it does not have the line once: it is another one."""
        path = directory / self.file
        text = path.read_text(encoding="utf-8")
        if text.count(self.line) != 1:
            raise SystemExit(f"{path} does not contain this line exactly once: {self.line}")
        path.write_text(text.replace(self.line, self.becomes), encoding="utf-8")


class Repository(msgspec.Struct, frozen=True, kw_only=True):
    """A public repository, of which the user has a clone in a folder of the same name."""

    owner: str
    name: str
    commit: str  # that was tried
    licence: str

    @property
    def url(self) -> str:
        return f"https://github.com/{self.owner}/{self.name}"


class RealScript(msgspec.Struct, frozen=True, kw_only=True):
    """A script of somebody else's. It is run in a copy of its folder."""

    name: str
    repository: Repository
    folder: str  # of the repository, from which its users start it
    script: str  # from this folder on
    args: tuple[str, ...]
    batch_size: int
    slower: Edit
    causes: tuple[CauseKind, ...]  # of a case with the edit: one of them is right
    world_sizes: tuple[int, ...] = (1, 2)
    env: dict[str, str] = {}  # {world_size} is replaced
    packages: tuple[str, ...] = ()  # beside torch, by the names of their modules
    samples_per_step: str = "{world_size} * {batch_size}"
    for_cpu: tuple[Edit, ...] = ()  # a script that insists on GPUs needs them
    data: Callable[[Path], None] | None = None  # makes what it reads, in its folder
    # A line that it prints in a step: the number of a step, and its milliseconds.
    own_times: str | None = None
    own_times_lag: int = 0  # the milliseconds are of so many steps before this number

    @property
    def missing(self) -> tuple[str, ...]:
        """The packages that cannot be imported here."""
        return tuple(one for one in self.packages if importlib.util.find_spec(one) is None)

    @property
    def path(self) -> str:
        """The path of the script in its repository."""
        return self.script if self.folder == "." else f"{self.folder}/{self.script}"

    def suites(self) -> dict[str, dict[str, Any]]:
        """Return the fields of its suite files, by suite: of one for all numbers of ranks.

        If its environment names the number of ranks, each number has a suite of its own.
        """
        if not any("{world_size}" in value for value in self.env.values()):
            return {self.name: self._suite(self.name, self.world_sizes, self.env)}
        return {
            f"{self.name}_{ranks}": self._suite(
                f"{self.name}_{ranks}",
                (ranks,),
                {name: value.format(world_size=ranks) for name, value in self.env.items()},
            )
            for ranks in self.world_sizes
        }

    def _suite(self, name: str, ranks: tuple[int, ...], env: dict[str, str]) -> dict[str, Any]:
        return {
            "suite": name,
            "tier": "cpu",
            "script": self.script,
            "args": list(self.args),
            "world_sizes": list(ranks),
            "batch_sizes": [self.batch_size],
            "samples_per_step": self.samples_per_step,
            "env": env,
            "steps": STEPS,
            "warmup": WARMUP,
            "launches": LAUNCHES,
            "tolerances": TOLERANCES,
        }

    def place(self, clones: Path, directory: Path) -> None:
        """Copy its folder of the clone to a directory, make what it needs, and edit it for CPUs."""
        source = clones / self.repository.name / self.folder
        shutil.copytree(source, directory, ignore=shutil.ignore_patterns(".git"))
        for edit in self.for_cpu:
            edit.make(directory)
        if self.data is not None:
            self.data(directory)
