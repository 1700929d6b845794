"""The distributions that an interpreter finds, with their files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath

import msgspec
from packaging.utils import canonicalize_name

from ddp_perf.duel.sides.virtual_environment import output_of
from ddp_perf.errors import SideError

# Ranks import neither: the package is the driver's own on both sides.
_NEVER_TO_BLAME = {"pip", "ddp-perf"}
_IMPORTED = {".py", ".so"}
# Runs in the other interpreter, so it imports the standard library only.
_SCRIPT = """
import importlib.metadata, json, os, platform, sys, sysconfig
sys.path[:] = [path for path in sys.path if path]
found = {}
for one in importlib.metadata.distributions():
    name = one.metadata["Name"]
    if name and name.lower() not in found:
        found[name.lower()] = {
            "name": name, "version": one.version, "requires": one.requires or [],
            "location": os.path.realpath(one.locate_file("")),
            "files": [str(file) for file in one.files or ()],
        }
print(json.dumps({
    "python": platform.python_version(), "abi": sysconfig.get_config_var("SOABI") or "",
    "distributions": list(found.values()),
}))
"""


class Distribution(msgspec.Struct, frozen=True, kw_only=True):
    """An installed distribution. ``files`` are relative to ``location``, as RECORD lists them."""

    name: str
    version: str
    location: str
    files: tuple[str, ...] = ()
    requires: tuple[str, ...] = ()

    @property
    def modules(self) -> tuple[str, ...]:
        """The files that an import may read, without byte code and metadata."""
        return tuple(
            file
            for file in self.files
            if not file.startswith(("..", "/"))
            and not file.endswith((".pyc", ".pth"))
            and not PurePosixPath(file).parts[0].endswith((".dist-info", ".egg-info"))
        )

    @property
    def entries(self) -> frozenset[str]:
        """The names in its location that it imports from: directories, and single modules."""
        paths = map(PurePosixPath, self.modules)
        return frozenset(
            path.parts[0] for path in paths if len(path.parts) > 1 or path.suffix in _IMPORTED
        )

    @property
    def metadata_entry(self) -> str | None:
        """The name of its directory of metadata, which states its version; None: it has none."""
        tops = (PurePosixPath(file).parts[0] for file in self.files if not file.startswith(".."))
        return next((top for top in tops if top.endswith((".dist-info", ".egg-info"))), None)


class Inventory(msgspec.Struct, frozen=True, kw_only=True):
    """An interpreter: its version, its binary interface, and its distributions by their name."""

    python: str
    abi: str
    distributions: dict[str, Distribution]


class _Answer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of the script."""

    python: str
    abi: str
    distributions: list[Distribution]


def read_inventory(interpreter: str, environ: Mapping[str, str]) -> Inventory:
    """Ask an interpreter for its distributions. Raises SideError if it does not answer."""
    failure = "its packages cannot be listed"
    answered = output_of(interpreter, _SCRIPT, environ, failure=failure)
    try:
        answer = msgspec.json.decode(answered, type=_Answer)
    except msgspec.DecodeError as error:
        raise SideError(f"{interpreter}: {failure}: {error}") from None
    found = {str(canonicalize_name(one.name)): one for one in answer.distributions}
    kept = {name: one for name, one in sorted(found.items()) if name not in _NEVER_TO_BLAME}
    return Inventory(python=answer.python, abi=answer.abi, distributions=kept)
