"""The files of the work gate: ``baselines/work/<minor version of torch>/<suite>.json``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ddp_perf.baselines.writing import write_json, writing
from ddp_perf.errors import BaselineError
from ddp_perf.system.versioned_json import VersionedJson
from ddp_perf.work.baseline import WorkBaseline, torch_minor
from ddp_perf.work.layout import (
    WORK_VERSION,
    FileWorkBaseline,
    work_from_file,
    work_problems,
    work_to_file,
)

_REMEDY = "restore it from version control"
_FILES = VersionedJson(
    schema=FileWorkBaseline,
    version=WORK_VERSION,
    kind="a file of the work gate",
    error=BaselineError,
    remedy=_REMEDY,
    anew="move it away and count again: pytest -m work --save-baseline",
)


class WorkStore:
    """The files of the work gate below one directory of baselines."""

    def __init__(self, baselines_directory: Path) -> None:
        self.directory = baselines_directory

    def path(self, suite: str, torch: str) -> Path:
        return self.directory / "work" / torch_minor(torch) / f"{suite}.json"

    def versions(self, suite: str) -> list[str]:
        """Return the minor versions of torch that have a file of the suite, oldest first."""
        found = (self.directory / "work").glob(f"*/{suite}.json")
        return sorted((path.parent.name for path in found), key=_as_numbers)

    def load(self, suite: str, torch: str) -> WorkBaseline:
        """Return what is stored for a version of torch. Raises BaselineError for a broken file."""
        path, version = self.path(suite, torch), torch_minor(torch)
        stored = _FILES.read_if_present(path)
        if stored is None:
            return WorkBaseline(suite=suite, torch=version)
        for field, expected in (("suite", suite), ("torch", version)):
            if (found := getattr(stored, field)) != expected:
                raise BaselineError(f"{path}: {field} is {found!r}, not {expected!r}; {_REMEDY}")
        for problem in work_problems(stored):
            raise BaselineError(f"{path}: {problem}; {_REMEDY}")
        return work_from_file(stored)

    def load_nearest_first(self, suite: str, torch: str) -> list[WorkBaseline]:
        """Return what is stored for this version of torch, then for the others, nearest first.

        The first one is always of this version, and may be empty. Raises BaselineError.
        """
        own = torch_minor(torch)
        others = [version for version in self.versions(suite) if version != own]
        near = sorted(others, key=lambda version: _distance(version, own))
        return [self.load(suite, version) for version in (own, *near)]

    def update(
        self, suite: str, torch: str, change: Callable[[WorkBaseline], WorkBaseline]
    ) -> WorkBaseline:
        """Read, change and replace a file under the lock of the baselines, and return its content.

        An unchanged one is not written. Raises BaselineError if the file is broken, is locked for
        too long, or cannot be written.
        """
        path = self.path(suite, torch)
        with writing(self.directory, path):
            before = self.load(suite, torch)
            after = change(before)
            if after != before:
                write_json(path, work_to_file(after))
        return after


def _as_numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) if part.isdecimal() else 0 for part in version.split("."))


def _distance(version: str, own: str) -> tuple[tuple[int, ...], bool]:
    """Return the order of a version by its distance; of two as far, the older one comes first."""
    one, other = _as_numbers(version), _as_numbers(own)
    apart = tuple(abs(a - b) for a, b in zip(one, other, strict=False))
    return apart, one > other
