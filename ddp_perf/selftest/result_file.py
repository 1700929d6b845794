"""The file ``selftest.json``: read it, in this version or an older one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ddp_perf.errors import ResultsError
from ddp_perf.selftest.curve import PowerCurve
from ddp_perf.selftest.text import SCHEMA_VERSION, SelftestFile
from ddp_perf.system.versioned_json import VersionedJson


def read_power_curve(path: Path) -> PowerCurve | None:
    """Return the power curve of a self-test, or None if there is no such file.

    Raises ResultsError, which names the file, the field and the remedy.
    """
    found = _FORMAT.read_if_present(path)
    return None if found is None else found.curve


def _from_version_1(data: dict[str, Any]) -> None:
    """Rename the counts of sessions, which version 1 called nights."""
    curve = data["curve"]
    curve["sessions"] = curve.pop("nights")
    curve["stored_sessions"] = curve.pop("stored_nights")


def _from_version_2(data: dict[str, Any]) -> None:
    """Remove the modelled power, and the smallest point found: the points imply it."""
    for name in ("modelled", "stored_sessions", "sees"):
        del data["curve"][name]


_FORMAT = VersionedJson(
    schema=SelftestFile,
    version=SCHEMA_VERSION,
    kind="the result of a self-test",
    error=ResultsError,
    remedy="remove it, or run ddp-perf selftest",
    migrations={1: _from_version_1, 2: _from_version_2},
)
