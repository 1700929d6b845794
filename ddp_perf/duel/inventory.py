"""The conditions of launches: what an interpreter can import, files, and variables."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path, PurePosixPath

import msgspec
from packaging.utils import canonicalize_name

from ddp_perf.core.case import Case, Tier
from ddp_perf.duel.sides.virtual_environment import output_of
from ddp_perf.duel.values import PreparedSide
from ddp_perf.errors import SideError
from ddp_perf.system.files import UNREADABLE
from ddp_perf.system.git import read_code_state
from ddp_perf.system.ledger import Conditions
from ddp_perf.system.variables import training_variables

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
    except UNREADABLE as error:
        raise SideError(f"{interpreter}: {failure}: {error}") from None
    found = {str(canonicalize_name(one.name)): one for one in answer.distributions}
    kept = {name: one for name, one in sorted(found.items()) if name not in _NEVER_TO_BLAME}
    return Inventory(python=answer.python, abi=answer.abi, distributions=kept)


# What launches of two sides depend on: their files, their variables, and the machine.
#
# A file is known by its size and its time of change: torch alone has gigabytes, and a file that was
# installed or edited anew has another time.


_INSTALLED = "site-packages"  # of a virtual environment in the tree: an inventory has its files


def conditions_of_sides(
    a: PreparedSide, b: PreparedSide, cases: Sequence[Case], machine: str
) -> Conditions:
    """Return what all launches of both sides have in common. Raises SideError.

    ``machine`` is its key. Launches under other conditions are not mixed.
    """
    conditions: Conditions = {
        "machine": machine,
        "options of the cases": _digest(
            msgspec.json.encode(case, order="sorted").decode() for case in cases
        ),
        "ddp_perf": version("ddp-perf"),
    }
    packages = _packages(a)
    for side in (a, b):
        of_it = f"of {side.side.name}"
        conditions[f"sources {of_it}"] = side.side.commit
        if side.side.kind != "revision":
            state = read_code_state(side.root)
            tree = "" if isinstance(state, str) else state.tree
            conditions[f"sources {of_it}"] = f"{digest_of_sources(side.root)} {tree}"
        if _interpreter(side) != _interpreter(a):  # it takes a second to read them
            packages = _packages(side)
        conditions[f"packages {of_it}"] = packages
        variables = sorted(variables_of(side, cases[0].tier).items())
        conditions[f"variables {of_it}"] = " ".join(f"{k}={v}" for k, v in variables)
    return conditions


def _interpreter(side: PreparedSide) -> tuple[str | None, str, Mapping[str, str]]:
    return side.command, side.interpreter, side.environ


def _packages(side: PreparedSide) -> str:
    if side.command is not None:
        return side.command
    return _of_packages(read_inventory(side.interpreter, side.environ))


def variables_of(side: PreparedSide, tier: Tier) -> dict[str, str]:
    """Return the variables that change training, and all that the side itself sets."""
    return {**training_variables(tier, side.environ), **side.variables}


def digest_of_sources(root: Path) -> str:
    """Return a digest of the modules of a project: they are what trains."""
    return _digest(_files(_sources(root)))


def _of_packages(inventory: Inventory) -> str:
    return _digest(
        line
        for name, one in sorted(inventory.distributions.items())
        for line in (
            f"{name} {one.version}",
            *_files(Path(one.location, file) for file in one.modules),
        )
    )


def _sources(root: Path) -> Iterator[Path]:
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(n for n in folders if not n.startswith(".") and n != _INSTALLED)
        yield from (Path(folder, name) for name in sorted(names) if Path(name).suffix in _IMPORTED)


def _files(paths: Iterable[Path]) -> Iterator[str]:
    for path in paths:
        try:
            found = path.stat()
        except OSError:
            yield f"{path} is missing"
        else:
            yield f"{path} {found.st_size} {found.st_mtime_ns}"


def _digest(lines: Iterable[str]) -> str:
    digest = hashlib.sha256()
    for line in lines:
        digest.update(f"{line}\n".encode(errors="surrogateescape"))
    return digest.hexdigest()[:16]
