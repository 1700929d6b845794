"""The search between two environments: they are compared, and their changes are probed."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from ddp_perf.core.case import Case
from ddp_perf.core.metric import STEP_TIME
from ddp_perf.duel.environments.conditions import probe_conditions
from ddp_perf.duel.environments.culprits import Search, expected_probes, find_culprits
from ddp_perf.duel.environments.differences import changed_distributions
from ddp_perf.duel.environments.factors import Factor, package_factors, variable_factors
from ddp_perf.duel.environments.hybrid import check_compatible
from ddp_perf.duel.environments.log import ProbeLog
from ddp_perf.duel.environments.probes import OutOfTimeError, Probe, Prober
from ddp_perf.duel.inventory import read_inventory
from ddp_perf.duel.values import PreparedSide
from ddp_perf.errors import SideError
from ddp_perf.launch.launcher import Launcher
from ddp_perf.stats.duel.pair_plan import PairedPlan, plan_pair_looks

_TOLERANCE = 0.05  # of a case that is not gated
_MOST_PAIRS = 20  # of a probe: one that is undecided then is unresolved


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
    """A search between two environments. What was probed stays readable if ``run`` is interrupted.

    ``machine`` is its key, ``logs`` the directory of finished probes: those of an earlier run are
    not made again. Make it while the machine is leased, so that no other search writes the same
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
        confidence: float = 0.95,
    ) -> None:
        self._differences, self._a, self._b, self._case = differences, a, b, case
        self.expected = expected_probes(len(differences.factors))  # to find one culprit
        self.plan = PairedPlan(
            alpha=(1 - confidence) / self.expected,
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
        self._log = ProbeLog(logs, question, conditions, differences.factors)

    @property
    def log(self) -> ProbeLog:
        """The finished probes, those of an earlier run included."""
        return self._log

    def run(
        self,
        open_launcher: Callable[[PreparedSide], Launcher],
        *,
        until: float,
        on_probe: Callable[[int], None],
    ) -> None:
        """Make probes until every culprit is found, or ``time.monotonic()`` is ``until``.

        ``on_probe`` receives the number of finished probes. Raises LaunchError if ranks cannot be
        started, SideError if environment A fails, ResultsError if the log cannot be written.
        """
        factors = self._differences.factors
        with contextlib.ExitStack() as stack:
            directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="ddp-perf-hybrid-"))
            prober = Prober(
                self._a,
                self._case,
                factors,
                plan=self.plan,
                open_launcher=open_launcher,
                directory=Path(directory),
                until=until,
            )
            stack.enter_context(contextlib.closing(prober))
            log = self._log
            if log.probes:
                prober.metric = log.probes[0].metric  # all of a search have one metric
            else:
                prober.calibrate()

            def probe(known: Sequence[Factor], moved: Sequence[Factor]) -> Probe:
                with contextlib.suppress(OutOfTimeError):
                    return log.recall(known, moved)
                log.append(prober.probe(known, moved))
                on_probe(len(log.probes))
                return log.probes[-1]

            find_culprits(factors, probe)

    def result(self) -> EnvironmentSearch:
        """Return what the finished probes show."""
        factors = self._differences.factors
        probes = self._log.probes
        return EnvironmentSearch(
            good=self._a.side.spec,
            bad=self._b.side.spec,
            case_id=self._case.id,
            metric=probes[0].metric if probes else STEP_TIME.name,
            tolerance=self.plan.tolerance,
            alpha=self.plan.alpha,
            factors=tuple(factor.label for factor in factors),
            fixed=self._differences.fixed,
            search=find_culprits(factors, self._log.recall),
        )
