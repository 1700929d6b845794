"""The search between two environments: they are compared, and their changes are probed."""

from __future__ import annotations

import contextlib
import shlex
import tempfile
from collections.abc import Callable, Iterator
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
from ddp_perf.duel.inventory import conditions_of_sides, read_inventory
from ddp_perf.duel.sides.preparing import parse_side, prepare
from ddp_perf.duel.values import PreparedSide, Side, SideName
from ddp_perf.errors import SideError
from ddp_perf.launch.launcher import Launcher
from ddp_perf.session.measure.experiment import Experiment, open_log
from ddp_perf.stats.pairs import PairedPlan, plan_pair_looks

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
        conditions = conditions_of_sides(a, b, [case], machine)
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
        be started or environment A fails, ResultsError if the log cannot be written.
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
