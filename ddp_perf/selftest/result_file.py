"""The file ``selftest.json``, as it is read."""

from __future__ import annotations

from pathlib import Path

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


_FORMAT = VersionedJson(
    schema=SelftestFile,
    version=SCHEMA_VERSION,
    kind="the result of a self-test",
    error=ResultsError,
    remedy="remove it, or run ddp-perf selftest",
)
