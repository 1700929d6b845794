"""The results file (``--ddp-json``): everything measured and concluded, schema-versioned."""

from __future__ import annotations

import contextlib
import datetime
import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ddp_perf.core.metric import STEP_TIME
from ddp_perf.errors import ResultsError
from ddp_perf.session.result import SuiteResult
from ddp_perf.system.files import replace_file

SCHEMA_VERSION = 1
_REMEDY = "write it anew with pytest --ddp-json"


class ResultsFile(msgspec.Struct, frozen=True, kw_only=True):
    """One session of pytest."""

    schema_version: int = SCHEMA_VERSION
    complete: bool  # False: written while the session was still running
    suites: tuple[SuiteResult, ...]


class _Version(msgspec.Struct, frozen=True, kw_only=True):
    """What is read of any file before all else."""

    schema_version: int


_RESULTS, _VERSION = msgspec.json.Decoder(ResultsFile), msgspec.json.Decoder(_Version)


def write_results(path: Path, suites: Sequence[SuiteResult], *, complete: bool) -> None:
    """Replace ``path`` by these results, or leave it as it is. Raises OSError."""
    results = ResultsFile(complete=complete, suites=tuple(suites))
    replace_file(path, msgspec.json.encode(results))


def read_results(path: Path) -> ResultsFile:
    """What ``write_results`` wrote. Raises ResultsError naming the file, the field, the remedy."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise ResultsError(
            f"{path}: cannot be read: {error.strerror}; pytest --ddp-json writes such a file"
        ) from None
    results = None
    with contextlib.suppress(msgspec.DecodeError):
        if _VERSION.decode(raw).schema_version == SCHEMA_VERSION:
            results = _RESULTS.decode(raw)
    if results is None:
        results = _explained(path, raw)
    for number, suite in enumerate(results.suites):
        for problem in _problems(suite):
            raise ResultsError(f"{path}: suites[{number}].{problem}; {_REMEDY}")
    return results


def _explained(path: Path, raw: bytes) -> ResultsFile:
    """The slow way, which tells a version from a broken file, and names the field."""
    try:
        # NaN is no JSON, and 1e999 no number. Left as text where a number belongs, each is
        # refused by its field.
        data = json.loads(raw, parse_constant=str, parse_float=_finite)
    except ValueError as error:
        raise ResultsError(f"{path}: cut short, or no JSON ({error}); {_REMEDY}") from None
    _check_version(path, data)
    try:
        return msgspec.convert(data, ResultsFile)
    except msgspec.ValidationError as error:
        message, _, where = str(error).partition(" - at ")
        field = where.strip("`").removeprefix("$.") or "the file"
        raise ResultsError(f"{path}: {field}: {message}; {_REMEDY}") from None


def _finite(text: str) -> float | str:
    value = float(text)
    return value if math.isfinite(value) else text


def _check_version(path: Path, data: object) -> None:
    """Before all else: with another version, any other message would mislead."""
    if not isinstance(data, dict) or "schema_version" not in data:
        raise ResultsError(f"{path}: schema_version: missing, so no results file; {_REMEDY}")
    if data["schema_version"] != SCHEMA_VERSION:
        raise ResultsError(
            f"{path}: schema_version: is {data['schema_version']!r}, this ddp-perf reads"
            f" {SCHEMA_VERSION}; use the ddp-perf that wrote the file, or {_REMEDY}"
        )


def _problems(suite: SuiteResult) -> Iterator[str]:
    """What the types cannot say: field and fault."""
    try:
        datetime.datetime.fromisoformat(suite.date)
    except ValueError:
        yield f"date: is {suite.date!r}, no date of ISO 8601"
    for case_id, measurement in suite.measurements.items():
        case, launches = measurement.case, measurement.launches
        if case.id != case_id:
            yield f"measurements.{case_id}.case.id: is {case.id!r}"
        for i, launch in enumerate(launches):
            if not all(rank.step_s and min(rank.step_s) > 0 for rank in launch.ranks):
                yield f"measurements.{case_id}.launches[{i}].ranks: lack a step, or its time"
            if case.world_size < 1 or len(launch.ranks) != case.world_size:
                yield (
                    f"measurements.{case_id}.launches[{i}].ranks: are {len(launch.ranks)},"
                    f" where world_size is {case.world_size}"
                )
        rows = suite.summaries.get(case_id, ())
        if len(rows) != len(launches):
            yield f"summaries.{case_id}: are {len(rows)}, of {len(launches)} launches"
        for i, row in enumerate(rows):
            if STEP_TIME.name not in row.values:
                yield f"summaries.{case_id}[{i}].values.{STEP_TIME.name}: missing"
            figures = {**msgspec.structs.asdict(row), **row.values}
            for name in figures.keys() - {"round", "values", "decomposition"}:
                if not 0 < figures[name] < math.inf:
                    yield f"summaries.{case_id}[{i}].{name}: {figures[name]} is no measured figure"


def results_schema() -> dict[str, Any]:
    """JSON Schema of a results file."""
    return msgspec.json.schema(ResultsFile)
