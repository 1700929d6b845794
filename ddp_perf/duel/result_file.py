"""The results file of a duel: everything that was measured, so that nothing is lost."""

from __future__ import annotations

import itertools
from pathlib import Path

import msgspec

from ddp_perf.duel.values import Duel
from ddp_perf.errors import ResultsError
from ddp_perf.system.files import replace_file
from ddp_perf.system.versioned_json import VersionedJson

SCHEMA_VERSION = 1


class DuelFile(msgspec.Struct, frozen=True, kw_only=True):
    """The results of one duel."""

    schema_version: int = SCHEMA_VERSION
    duel: Duel


_FORMAT = VersionedJson(
    schema=DuelFile,
    version=SCHEMA_VERSION,
    kind="the result of a duel",
    error=ResultsError,
    remedy="run ddp-perf duel again",
)


def write_duel(path: Path, duel: Duel) -> None:
    """Replace ``path`` by this duel. Raises ResultsError, which names the file."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, msgspec.json.encode(DuelFile(duel=duel)))
    except OSError as error:
        raise ResultsError(f"{path}: cannot be written: {error.strerror}") from None


def read_duel(path: Path) -> Duel:
    """Read what `write_duel` wrote.

    Raises ResultsError, which names the file, the field and the remedy.
    """
    return _FORMAT.read(path).duel


def result_path(directory: Path, duel: Duel) -> Path:
    """Return a file for a duel, named by the time at which the duel began, that is not there yet.

    Another duel may have begun in the same second.
    """
    began = duel.began[:19].replace(":", "")
    names = (began if number == 1 else f"{began}-{number}" for number in itertools.count(1))
    return next(path for name in names if not (path := directory / f"{name}.json").exists())
