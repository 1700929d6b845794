"""The files of a project that each case reads."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from ddp_perf.config.loading import find_suites, suite_file
from ddp_perf.config.yaml_file import read_yaml
from ddp_perf.core.case import Case
from ddp_perf.core.script import ScriptRun
from ddp_perf.core.subject import PACKAGES
from ddp_perf.duel.imports import Imported, files_of_script, imported_files
from ddp_perf.duel.touched import CaseSources
from ddp_perf.errors import ConfigError
from ddp_perf.launch.rank_packages import RANK_PACKAGES
from ddp_perf.system.packages import versions_behind


class Project(msgspec.Struct, frozen=True, kw_only=True):
    """The user's tree: its root, its suite files, and where ranks import from."""

    root: Path
    suites: tuple[Path, ...]
    import_paths: tuple[str, ...]


def sources_of(
    cases: Sequence[Case], suites: Sequence[Path], import_paths: Sequence[str], repository: Path
) -> dict[tuple[str, str], CaseSources]:
    """Return the sources of each case by its key. ``suites`` are the files that have the cases."""
    root = repository.resolve()
    files = {case.suite: suite_file(case.suite, suites) for case in cases}
    others = [file for folder in {path.parent for path in suites} for file in _suites_in(folder)]
    imported = imported_by(cases, import_paths, root)
    return {
        case.key: CaseSources(
            suite="" if (suite := files[case.suite]) is None else _from(root, suite),
            suites=frozenset(_from(root, file) for file in others),
            workload=case.workload,
            is_script=case.script is not None,
            imported=frozenset(_from(root, file) for file in imported[case.suite].files),
            named=frozenset(_from(root, file) for file in _named(case.script, import_paths)),
            unknown=imported[case.suite].unknown,
        )
        for case in cases
    }


def _suites_in(directory: Path) -> Iterator[Path]:
    for path in find_suites(directory):
        with contextlib.suppress(ConfigError, OSError):  # another file of YAML: it may be data
            content = read_yaml(path)
            if isinstance(content, dict) and "suite" in content:
                yield path


def imported_by(
    cases: Iterable[Case], import_paths: Sequence[str], root: Path
) -> dict[str, Imported]:
    """Return the files under ``root`` that ranks may import or run, by the name of their suite."""
    of_suites = {case.suite: case for case in cases}  # all cases of a suite train the same
    return {name: _imported(case, import_paths, root) for name, case in of_suites.items()}


def _imported(case: Case, import_paths: Sequence[str], root: Path) -> Imported:
    if case.script is not None:
        return files_of_script(case.script, import_paths, root)
    module, colon, _ = case.workload.partition(":")
    if not colon:  # it is a workload of ddp_perf, or a collective
        return Imported(files=frozenset())
    return imported_files(module, import_paths, root)


def packages_of(
    cases: Sequence[Case], import_paths: Sequence[str], repository: Path
) -> dict[str, str]:
    """Return the versions of the packages that ranks of the cases import, and of what these need.

    The files below ``repository`` are searched for what they import; nothing is run.
    """
    imported = imported_by(cases, import_paths, repository.resolve())
    own = (one.external for one in imported.values())
    models = {PACKAGES[case.workload] for case in cases if case.workload in PACKAGES}
    return versions_behind({*RANK_PACKAGES, "numpy", *models}.union(*own))


def _named(run: ScriptRun | None, import_paths: Sequence[str]) -> Iterator[Path]:
    """Yield the places that the arguments of a script may name, as ``a`` and ``--config=a`` do."""
    for text in () if run is None else run.args:
        for part in {text, text.partition("=")[2]} - {""}:
            yield from (Path(path) / part for path in import_paths[:1])


def _from(repository: Path, file: Path) -> str:
    file = file.resolve()
    inside = file.is_relative_to(repository)
    return (file.relative_to(repository) if inside else file).as_posix()
