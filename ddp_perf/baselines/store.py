"""The baseline files: they are read strictly and written atomically, by one writer at a time.

``baselines/<accelerator>.json`` contains the sessions of one accelerator. No session writes
``baselines/structure/<suite>.json``: it describes the steps of a suite on any machine.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import filelock
import msgspec

from ddp_perf.baselines.format import format_json
from ddp_perf.core.baseline import (
    CONTROL,
    SCHEMA_VERSION,
    Baseline,
    CaseStructure,
    StructureBaseline,
)
from ddp_perf.core.launch import Structure
from ddp_perf.core.metric import METRICS
from ddp_perf.errors import BaselineError
from ddp_perf.system.files import replace_file
from ddp_perf.system.versioned_json import VersionedJson

_REMEDY = "restore it from version control"
_BASELINES = VersionedJson(
    schema=Baseline,
    version=SCHEMA_VERSION,
    kind="a baseline file",
    error=BaselineError,
    remedy=_REMEDY,
)
_STRUCTURES = VersionedJson(
    schema=StructureBaseline,
    version=SCHEMA_VERSION,
    kind="a file of structures",
    error=BaselineError,
    remedy=_REMEDY,
)
_LOCK_PATIENCE_S = 30


class BaselineStore:
    """The baseline files of one directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def path(self, accelerator: str) -> Path:
        return self.directory / f"{accelerator}.json"

    def accelerators(self) -> list[str]:
        """Return the keys of the accelerators that have a file, sorted."""
        return sorted(path.stem for path in self.directory.glob("*.json"))

    def structure_path(self, suite: str) -> Path:
        return self.directory / "structure" / f"{suite}.json"

    def load_structures(self, suite: str) -> dict[str, CaseStructure]:
        """Return the structures by case id; none without a file. Raises BaselineError."""
        stored = _STRUCTURES.read_if_present(self.structure_path(suite))
        return {} if stored is None else stored.cases

    def structures_by_case(self) -> dict[str, Structure]:
        """Return the structure of each case of every suite. Raises BaselineError."""
        files = sorted((self.directory / "structure").glob("*.json"))
        cases = [self.load_structures(file.stem).items() for file in files]
        return {case_id: stored.structure for of_suite in cases for case_id, stored in of_suite}

    def load(self, accelerator: str) -> Baseline:
        """Return the stored baseline, or an empty one. Raises BaselineError for a broken file."""
        path = self.path(accelerator)
        baseline = _BASELINES.read_if_present(path)
        if baseline is None:
            units = {metric.name: metric.unit for metric in METRICS} | {CONTROL: "s"}
            return Baseline(accelerator=accelerator, units=units)
        _check(path, baseline, accelerator)
        return baseline

    def relatives(self, accelerator: str) -> list[Baseline]:
        """Return the baselines of the other accelerators of a family, as ``v100-…``.

        The nearest name comes first. A processor has no relatives: each host has its own key.
        """
        family = accelerator.partition("-")[0]
        keys = [path.stem for path in self.directory.glob(f"{family}*.json")]
        others = [key for key in keys if key != accelerator and key.partition("-")[0] == family]
        near = sorted(others, key=lambda key: (-_shared(key, accelerator), key))
        return [] if family == "cpu" else [self.load(key) for key in near]

    def update(self, accelerator: str, change: Callable[[Baseline], Baseline]) -> Path:
        """Read, change and replace the file under a lock, and return its path.

        The old file stays unchanged until the new one is completely on disk.
        Raises BaselineError if the file is broken, is locked for too long, or cannot be written.
        """
        path = self.path(accelerator)
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            with filelock.FileLock(self.directory / ".lock", timeout=_LOCK_PATIENCE_S):
                changed = change(self.load(accelerator))
                _check(path, changed, accelerator)
                replace_file(path, format_json(msgspec.to_builtins(changed)).encode())
        except filelock.Timeout:
            raise BaselineError(
                f"{path}: another process has been writing here for {_LOCK_PATIENCE_S} s;"
                f" if no process is writing, remove {self.directory / '.lock'}"
            ) from None
        except OSError as error:
            raise BaselineError(
                f"{path}: cannot be written ({error.strerror}); the old file is untouched"
            ) from None
        return path


def read_baseline(path: Path) -> Baseline:
    """Read a baseline file of any name. Raises BaselineError if it is missing or broken."""
    baseline = _BASELINES.read(path)
    _check(path, baseline, baseline.accelerator)
    return baseline


def _shared(one: str, other: str) -> int:
    """Count the parts that the two names share."""
    return len(set(one.split("-")) & set(other.split("-")))


def _check(path: Path, baseline: Baseline, accelerator: str) -> None:
    """Check what the types do not: the accelerator's name, and that figures are positive."""
    if baseline.accelerator != accelerator:
        raise BaselineError(
            f"{path}: accelerator is {baseline.accelerator!r}; rename the file or correct the field"
        )
    for case_id, case in baseline.cases.items():
        figures = {"first": [case.first]}
        figures |= {f"sessions[{i}]": list(s.launches) for i, s in enumerate(case.sessions)}
        for where, launches in figures.items():
            for name, value in ((n, v) for launch in launches for n, v in launch.items()):
                if not (math.isfinite(value) and value > 0):
                    raise BaselineError(
                        f"{path}: cases.{case_id}.{where}.{name}: {value} is no measured figure;"
                        " the file is neither used nor changed"
                    )


def baseline_schema() -> dict[str, Any]:
    """Return the JSON Schema of a baseline file."""
    return msgspec.json.schema(Baseline)


def structure_schema() -> dict[str, Any]:
    """Return the JSON Schema of a file in ``baselines/structure/``."""
    return msgspec.json.schema(StructureBaseline)
