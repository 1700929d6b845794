"""The search between two environments: they are compared, and their changes are probed."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shlex
import tempfile
from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Literal

import msgspec

from ddp_perf.core.case import Case
from ddp_perf.duel.environments.factors import (
    Factor,
    changed_distributions,
    check_compatible,
    package_factors,
    variable_factors,
)
from ddp_perf.duel.environments.probes import (
    Probes,
    Probing,
    Search,
    expected_probes,
    find_culprits,
)
from ddp_perf.duel.inventory import Inventory, read_inventory
from ddp_perf.duel.sides.preparing import parse_side, prepare
from ddp_perf.duel.values import PreparedSide, Side, SideName
from ddp_perf.errors import SideError
from ddp_perf.launch.launcher import Launcher
from ddp_perf.session.measure.experiment import Experiment, open_log
from ddp_perf.stats.pairs import PairedPlan, plan_pair_looks
from ddp_perf.system.ledger import Conditions
from ddp_perf.system.variables import training_variables

# Conditions of a probe beside the two environments as they are named: files, and the machine.
#
# A file is known by its size and its time of change: torch alone has gigabytes, and a file that was
# installed or edited anew has another time.


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


# The search between two environments: they are compared, and their changes are probed.


_TOLERANCE = 0.05  # of a case that is not gated
_FALSE_BLAME = 0.05  # probability, at most, over the probes that find one culprit
_MOST_PAIRS = 20  # of a probe: one that is undecided then is unresolved
_FROM_A_SERVER = 6  # launches of an environment


class Differences(msgspec.Struct, frozen=True, kw_only=True):
    """The changes between two environments: those that can be moved, and why others cannot."""

    factors: tuple[Factor, ...]
    fixed: tuple[str, ...]


class EnvironmentSearch(msgspec.Struct, frozen=True, kw_only=True):
    """A search between two environments, as far as it came."""

    schema_version: Literal[1] = 1
    good: str
    bad: str
    case_id: str
    metric: str  # that decided
    tolerance: float  # within which a change is without effect, as a fraction
    alpha: float  # of each probe: of SLOWER, if nothing is
    factors: tuple[str, ...]  # labels of what was probed
    fixed: tuple[str, ...]  # what differs, but cannot be moved
    search: Search

    @property
    def confidence(self) -> float:
        """The probability, at least, that no culprit was named falsely: Bonferroni's bound."""
        return max(0.0, 1 - self.alpha * len(self.search.probes))


def find_differences(a: PreparedSide, b: PreparedSide) -> Differences:
    """Compare the packages and the variables of two sides.

    Raises SideError if nothing differs that can be moved, or an interpreter does not answer.
    """
    factors = variable_factors(a.variables, b.variables)
    fixed: list[str] = []
    if a.interpreter != b.interpreter:
        before = read_inventory(a.interpreter, a.environ)
        after = read_inventory(b.interpreter, b.environ)
        check_compatible(before, after)
        changes = changed_distributions(before, after)
        packages, fixed = package_factors(changes, before.python)
        factors = [*packages, *factors]
        if before.python != after.python:
            fixed.append(f"Python {before.python} → {after.python}: it is the interpreter itself")
    if not factors:
        rest = f"; what differs cannot be moved: {'; '.join(fixed)}" if fixed else ""
        raise SideError(
            f"{a.side.spec} and {b.side.spec} have the same packages and variables{rest}"
        )
    return Differences(factors=tuple(factors), fixed=tuple(fixed))


class EnvironmentRun:
    """A search between two environments. What it found stays readable if ``run`` is interrupted.

    ``machine`` is its key, ``logs`` the directory of finished launches: those of an earlier run
    are not made again. Make it while the machine is leased, so that no other search writes the same
    log, and close its ``log``. Raises ResultsError if that cannot be read, SideError if the
    packages cannot be listed.
    """

    def __init__(
        self,
        a: PreparedSide,
        b: PreparedSide,
        case: Case,
        differences: Differences,
        *,
        logs: Path,
        machine: str,
    ) -> None:
        self._differences, self._a, self._b, self._case = differences, a, b, case
        self.expected = expected_probes(len(differences.factors))  # to find one culprit
        self.plan = PairedPlan(
            alpha=_FALSE_BLAME / self.expected,
            tolerance=case.tolerances.step_time or _TOLERANCE,
            looks=plan_pair_looks(_MOST_PAIRS),
        )
        question = {
            "project": str(a.root),
            "good": a.side.spec,
            "bad": b.side.spec,
            "case": case.id,
        }
        conditions = probe_conditions(a, b, case, self.plan, machine)
        self.log = open_log(logs, question, conditions)

    def run(
        self,
        open_launcher: Callable[[PreparedSide], Launcher],
        *,
        until: float,
        on_launch: Callable[[int], None],
    ) -> None:
        """Launch pairs until every culprit is found, or ``time.monotonic()`` is ``until``.

        ``on_launch`` receives the number of finished launches. Raises LaunchError if ranks cannot
        be started, SideError if environment A fails, ResultsError if the log cannot be written.
        """
        with contextlib.ExitStack() as stack:
            directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="ddp-perf-hybrid-"))
            probing = Probing(
                self._a,
                self._case,
                self._differences.factors,
                plan=self.plan,
                open_launcher=open_launcher,
                directory=Path(directory),
                earlier=self.log.earlier,
            )
            stack.enter_context(contextlib.closing(probing))
            experiment = Experiment(self.log, launches_a_server=_FROM_A_SERVER, may_not_start=True)
            experiment.run(
                probing, until=until, on_launch=lambda _: on_launch(len(self.log.entries))
            )

    def result(self) -> EnvironmentSearch:
        """Return what the launches show."""
        factors, log = self._differences.factors, self.log
        probes = Probes(log.entries, factors, self.plan, earlier=log.earlier)
        return EnvironmentSearch(
            good=self._a.side.spec,
            bad=self._b.side.spec,
            case_id=self._case.id,
            metric=probes.metric,
            tolerance=self.plan.tolerance,
            alpha=self.plan.alpha,
            factors=tuple(factor.label for factor in factors),
            fixed=self._differences.fixed,
            search=find_culprits(factors, probes.of),
        )


# An environment as a user names it: one side of a duel, or an interpreter with variables.


_INTERPRETERS = ("python", "packages")


def parse_environment(text: str, name: SideName, root: Path) -> list[Side]:
    """Return the interpreter, the variables, or both, as sides of a duel. Raises SideError.

    As in ``python:/venv/bin/python env:OMP_NUM_THREADS=2`` and ``torch==2.11.0``.
    """
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise SideError(f"{text}: {error}") from None
    sides = [parse_side(word, name, root) for word in words]
    kinds = ["interpreter" if side.kind in _INTERPRETERS else side.kind for side in sides]
    if not sides or set(kinds) - {"interpreter", "env", "tree"} or len(set(kinds)) < len(kinds):
        raise SideError(
            f"{text!r} is not an environment; write python:/venv/bin/python, torch==VERSION,"
            ' env:NAME=VALUE, or two of them: "python:/venv/bin/python env:NAME=VALUE"; for'
            " commits use --good and --bad"
        )
    return sides


@contextlib.contextmanager
def prepare_environment(
    sides: list[Side], root: Path, *, on_progress: Callable[[str], None]
) -> Iterator[PreparedSide]:
    """Make the sides ready, and yield them as one. Raises SideError."""
    with contextlib.ExitStack() as stack:
        ready = [
            stack.enter_context(prepare(side, root, on_progress=on_progress)) for side in sides
        ]
        whole = next((one for one in ready if one.side.kind in _INTERPRETERS), ready[0])
        variables = {name: value for one in ready for name, value in one.variables.items()}
        spec = " ".join(side.spec for side in sides)
        yield msgspec.structs.replace(
            whole,
            side=msgspec.structs.replace(whole.side, spec=spec, label=spec),
            environ={**whole.environ, **variables},
            variables=variables,
        )
