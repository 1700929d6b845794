"""The results file (``--ddp-json``): all measurements and verdicts, with a schema version."""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ddp_perf.core.measurement import LaunchSummary, Measurement
from ddp_perf.core.metric import STEP_TIME
from ddp_perf.errors import ResultsError
from ddp_perf.session.result import SuiteResult
from ddp_perf.system.files import replace_file
from ddp_perf.system.versioned_json import VersionedJson

SCHEMA_VERSION = 1
_REMEDY = "write it anew with pytest --ddp-json"


class ResultsFile(msgspec.Struct, frozen=True, kw_only=True):
    """The results of one pytest session."""

    schema_version: int = SCHEMA_VERSION
    complete: bool  # False: written while the session was still running
    suites: tuple[SuiteResult, ...]


_FORMAT = VersionedJson(
    schema=ResultsFile,
    version=SCHEMA_VERSION,
    kind="a results file",
    error=ResultsError,
    remedy=_REMEDY,
    others={
        "accelerator": "a baseline file, not the results of a session; name a file that pytest"
        " --ddp-json=FILE wrote, or DIR/results.json of --ddp-report=DIR"
    },
)


def write_results(path: Path, suites: Sequence[SuiteResult], *, complete: bool) -> None:
    """Replace ``path`` by these results, or leave it unchanged and raise OSError."""
    replace_file(path, results_json(suites, complete=complete))


def results_json(suites: Sequence[SuiteResult], *, complete: bool) -> bytes:
    """Return the content of a results file."""
    return msgspec.json.encode(ResultsFile(complete=complete, suites=tuple(suites)))


def read_results(path: Path) -> ResultsFile:
    """Read what `write_results` wrote.

    Raises ResultsError, which names the file, the field and the remedy.
    """
    results = _FORMAT.read(path)
    for number, suite in enumerate(results.suites):
        for problem in _problems(suite):
            raise ResultsError(f"{path}: suites[{number}].{problem}; {_REMEDY}")
    return results


def joined_results(paths: Sequence[Path]) -> ResultsFile:
    """Read files of other suites each as one; it is complete if all of them are.

    Raises ResultsError if one cannot be read, or if two contain the same suite.
    """
    file_of: dict[str, Path] = {}
    files = [read_results(path) for path in paths]
    for path, file in zip(paths, files, strict=True):
        for suite in file.suites:
            if suite.suite in file_of:
                raise ResultsError(
                    f"{path}: {suite.suite} is in {file_of[suite.suite]}, too, and a report has one"
                    " session of a suite; compare two with ddp-perf compare"
                )
            file_of[suite.suite] = path
    return ResultsFile(
        complete=all(file.complete for file in files),
        suites=tuple(suite for file in files for suite in file.suites),
    )


def _problems(suite: SuiteResult) -> Iterator[str]:
    """Yield each fault that the types do not exclude, with its field."""
    try:
        datetime.datetime.fromisoformat(suite.date)
    except ValueError:
        yield f"date: {suite.date!r} is not an ISO 8601 date"
    for case_id, measurement in suite.measurements.items():
        yield from _problems_of_launches(case_id, measurement)
        rows, launches = suite.summaries.get(case_id, ()), len(measurement.launches)
        if len(rows) != launches:
            yield f"summaries.{case_id}: {len(rows)} summaries of {launches} launches"
        for i, row in enumerate(rows):
            for problem in _problems_of_summary(row):
                yield f"summaries.{case_id}[{i}].{problem}"


def _problems_of_launches(case_id: str, measurement: Measurement) -> Iterator[str]:
    case = measurement.case
    if case.id != case_id:
        yield f"measurements.{case_id}.case.id: is {case.id!r}"
    for i, launch in enumerate(measurement.launches):
        ranks = f"measurements.{case_id}.launches[{i}].ranks"
        if not all(rank.step_s and min(rank.step_s) > 0 for rank in launch.ranks):
            yield f"{ranks}: a rank has no step, or a step has no time"
        if case.world_size < 1 or len(launch.ranks) != case.world_size:
            yield f"{ranks}: {len(launch.ranks)} ranks, and world_size is {case.world_size}"


def _problems_of_summary(row: LaunchSummary) -> Iterator[str]:
    if STEP_TIME.name not in row.values:
        yield f"values.{STEP_TIME.name}: missing"
    figures = msgspec.structs.asdict(row) | row.values | {**row.clocks_mhz}
    # The overhead may be 0.
    other = {"round", "node", "values", "clocks_mhz", "decomposition", "overhead_s"}
    for name in figures.keys() - other:
        if not 0 < figures[name] < math.inf:
            yield f"{name}: {figures[name]} is no measured figure"


def results_schema() -> dict[str, Any]:
    """Return the JSON Schema of a results file."""
    return msgspec.json.schema(ResultsFile)
