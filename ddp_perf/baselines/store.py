"""``baselines/<accelerator>.json``: read strictly, written atomically, one writer at a time.

Beside them ``baselines/structure/<suite>.json``, which no session writes: what the steps of a
suite do on any machine.
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
    contents=Baseline,
    version=SCHEMA_VERSION,
    kind="a baseline file",
    error=BaselineError,
    remedy=_REMEDY,
)
_STRUCTURES = VersionedJson(
    contents=StructureBaseline,
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
        """The keys that there are files of."""
        return sorted(path.stem for path in self.directory.glob("*.json"))

    def structure_path(self, suite: str) -> Path:
        return self.directory / "structure" / f"{suite}.json"

    def load_structures(self, suite: str) -> dict[str, CaseStructure]:
        """By case id; empty where there is no file. Raises BaselineError for a broken one."""
        stored = _STRUCTURES.read_if_present(self.structure_path(suite))
        return {} if stored is None else stored.cases

    def structures_by_case(self) -> dict[str, Structure]:
        """Of every suite's cases. Raises BaselineError for a broken file."""
        files = sorted((self.directory / "structure").glob("*.json"))
        cases = [self.load_structures(file.stem).items() for file in files]
        return {case_id: stored.structure for of_suite in cases for case_id, stored in of_suite}

    def load(self, accelerator: str) -> Baseline:
        """The stored baseline, or an empty one. Raises BaselineError for a broken file."""
        path = self.path(accelerator)
        baseline = _BASELINES.read_if_present(path)
        if baseline is None:
            units = {metric.name: metric.unit for metric in METRICS} | {CONTROL: "s"}
            return Baseline(accelerator=accelerator, units=units)
        _check(path, baseline, accelerator)
        return baseline

    def relatives(self, accelerator: str) -> list[Baseline]:
        """Of other accelerators of the same family: ``v100-…`` of ``v100-pcie-16gb``.

        The nearest name first. A processor has none: every host's is its own.
        """
        family = accelerator.partition("-")[0]
        keys = [path.stem for path in self.directory.glob(f"{family}*.json")]
        others = [key for key in keys if key != accelerator and key.partition("-")[0] == family]
        near = sorted(others, key=lambda key: (-_shared(key, accelerator), key))
        return [] if family == "cpu" else [self.load(key) for key in near]

    def update(self, accelerator: str, change: Callable[[Baseline], Baseline]) -> Path:
        """Read, change and replace the file while no other process can.

        The old file stays as it is until the new one is wholly on disk.
        Raises BaselineError when the file is broken, locked for long, or cannot be written.
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
                f" if none is, remove {self.directory / '.lock'}"
            ) from None
        except OSError as error:
            raise BaselineError(
                f"{path}: cannot be written ({error.strerror}); the old file is untouched"
            ) from None
        return path


def read_baseline(path: Path) -> Baseline:
    """A file by its path, whatever its name. Raises BaselineError where it is missing or broken."""
    baseline = _BASELINES.read(path)
    _check(path, baseline, baseline.accelerator)
    return baseline


def _shared(one: str, other: str) -> int:
    """How many parts of the names are the same."""
    return len(set(one.split("-")) & set(other.split("-")))


def _check(path: Path, baseline: Baseline, accelerator: str) -> None:
    """What the types cannot say."""
    if baseline.accelerator != accelerator:
        raise BaselineError(
            f"{path}: accelerator is {baseline.accelerator!r}; rename the file or mend the field"
        )
    for case_id, case in baseline.cases.items():
        figures = {"first": [case.first]}
        figures |= {f"sessions[{i}]": list(s.launches) for i, s in enumerate(case.sessions)}
        for where, launches in figures.items():
            for name, value in ((n, v) for launch in launches for n, v in launch.items()):
                if not (math.isfinite(value) and value > 0):
                    raise BaselineError(
                        f"{path}: cases.{case_id}.{where}.{name}: {value} is no measured figure;"
                        " the file is not used, and not changed"
                    )


def baseline_schema() -> dict[str, Any]:
    """JSON Schema of a baseline file."""
    return msgspec.json.schema(Baseline)


def structure_schema() -> dict[str, Any]:
    """JSON Schema of a file of ``baselines/structure/``."""
    return msgspec.json.schema(StructureBaseline)
