"""The files of a project that each case reads."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ddp_perf.config.loading import suite_file
from ddp_perf.core.case import Case
from ddp_perf.duel.imports import Imported, imported_files
from ddp_perf.duel.touched import CaseSources


def sources_of(
    cases: Sequence[Case], suites: Sequence[Path], import_paths: Sequence[str], repository: Path
) -> dict[tuple[str, str], CaseSources]:
    """Return the sources of each case by its key. ``suites`` are the files that have the cases."""
    root = repository.resolve()
    files = {case.suite: suite_file(case.suite, suites) for case in cases}
    imported = {
        case.workload: imported_files(case.workload.split(":")[0], import_paths, root)
        for case in cases
        if ":" in case.workload
    }
    return {
        case.key: _sources(case, files[case.suite], imported.get(case.workload), root)
        for case in cases
    }


def _sources(
    case: Case, suite: Path | None, imported: Imported | None, repository: Path
) -> CaseSources:
    own = imported or Imported(files=frozenset())  # a workload of ddp_perf
    return CaseSources(
        suite="" if suite is None else _from(repository, suite),
        workload=case.workload,
        imported=frozenset(_from(repository, file) for file in own.files),
        unknown=own.unknown,
    )


def _from(repository: Path, file: Path) -> str:
    file = file.resolve()
    inside = file.is_relative_to(repository)
    return (file.relative_to(repository) if inside else file).as_posix()
