"""Hybrids: environment A with some changes of B, made without network and without an installation.

A directory of links to the chosen distributions of B lies before those of A on PYTHONPATH. Both
interpreters must have the same binary interface, since compiled modules are linked in, too.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from ddp_perf.core.case import Case
from ddp_perf.core.data import DATA_FOLDER
from ddp_perf.duel.environments.factors import Factor
from ddp_perf.duel.inventory import Inventory
from ddp_perf.duel.values import PreparedSide
from ddp_perf.errors import SideError


def check_compatible(a: Inventory, b: Inventory) -> None:
    """Raise SideError if compiled modules of B do not fit the interpreter of A."""
    if a.abi != b.abi:
        raise SideError(
            f"Python {a.python} and {b.python} ({a.abi}, {b.abi}): packages of one cannot be moved"
            " to the other; make both environments with the same Python, or compare them as they"
            " are with ddp-perf duel"
        )


def make_hybrid(a: PreparedSide, factors: Sequence[Factor], directory: Path) -> PreparedSide:
    """Return side A with the factors of B, whose links are made in a new ``directory``.

    ddp_perf is linked there, too: its own directory may have other packages, which would be found
    before those of B.
    """
    directory.mkdir(parents=True)
    (directory / "ddp_perf").symlink_to(a.package / "ddp_perf")
    for factor in factors:
        for name, path in factor.links:
            (directory / name).symlink_to(path)
    environ = _changed(a.environ, factors)
    paths = [os.fspath(directory), environ.get("PYTHONPATH", "")]
    environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    return msgspec.structs.replace(
        a, environ=environ, variables=_changed(a.variables, factors), package=directory
    )


def _changed(variables: Mapping[str, str], factors: Sequence[Factor]) -> dict[str, str]:
    """Return the variables with those of the factors, which set or unset them."""
    changed = dict(variables)
    for factor in factors:
        if factor.variable is not None:
            changed.pop(factor.variable, None)
            if factor.value is not None:
                changed[factor.variable] = factor.value
    return changed


def hybrid_case(case: Case, side: PreparedSide) -> Case:
    """Return the case with the variables of a side, which replace those of the suite."""
    given = {name: text for name, text in side.variables.items() if name != DATA_FOLDER}
    return msgspec.structs.replace(case, env={**case.env, **given})
