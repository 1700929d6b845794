"""Conditions of a probe beside the two environments as they are named: files, and the machine.

A file is known by its size and its time of change: torch alone has gigabytes, and a file that was
installed or edited anew has another time.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from importlib.metadata import version
from pathlib import Path

import msgspec

from ddp_perf.core.case import Case
from ddp_perf.duel.inventory import Inventory, read_inventory
from ddp_perf.duel.search_log import Conditions
from ddp_perf.duel.values import PreparedSide
from ddp_perf.stats.duel.pair_plan import PairedPlan
from ddp_perf.system.variables import training_variables

_INSTALLED = "site-packages"  # of a virtual environment in the tree: an inventory has its files


def probe_conditions(
    a: PreparedSide, b: PreparedSide, case: Case, plan: PairedPlan, machine: str
) -> Conditions:
    """Return what the probes of a search have in common. Raises SideError.

    ``machine`` is its key. Probes under other conditions are not mixed.
    """
    return {
        "machine": machine,
        "packages of good": _of_packages(read_inventory(a.interpreter, a.environ)),
        "packages of bad": _of_packages(read_inventory(b.interpreter, b.environ)),
        "sources of the project": digest_of_sources(a.root),
        "options of the case": _digest([msgspec.json.encode(case, order="sorted").decode()]),
        "rule": _digest([msgspec.json.encode(plan).decode()]),
        "ddp_perf": version("ddp-perf"),
        **training_variables(case.tier, os.environ),
    }


def digest_of_sources(root: Path) -> str:
    """Return a digest of the Python files of a project: they are what trains."""
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
        yield from (Path(folder, name) for name in sorted(names) if name.endswith(".py"))


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
