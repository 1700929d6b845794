"""The results file (``--ddp-json``): everything measured and concluded, schema-versioned."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from ddp_perf.session.result import SuiteResult
from ddp_perf.system.files import replace_file

SCHEMA_VERSION = 1


class ResultsFile(msgspec.Struct, frozen=True, kw_only=True):
    """One session of pytest."""

    schema_version: int = SCHEMA_VERSION
    complete: bool  # False: written while the session was still running
    suites: tuple[SuiteResult, ...]


def write_results(path: Path, suites: Sequence[SuiteResult], *, complete: bool) -> None:
    """Replace ``path`` by these results, or leave it as it is. Raises OSError."""
    results = ResultsFile(complete=complete, suites=tuple(suites))
    replace_file(path, msgspec.json.encode(results))


def results_schema() -> dict[str, Any]:
    """JSON Schema of a results file."""
    return msgspec.json.schema(ResultsFile)
