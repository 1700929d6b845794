"""The duel of a pytest session: what it compares, and its one run at the first request."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from ddp_perf.core.case import Case
from ddp_perf.duel.changed_files import changed_files, repository_root
from ddp_perf.duel.sides.parsing import parse_side
from ddp_perf.duel.sources import Project, sources_of
from ddp_perf.duel.touched import Touched, touched_cases
from ddp_perf.duel.values import CaseDuel, Duel, Side
from ddp_perf.errors import ConfigError, DdpPerfError
from ddp_perf.plugin.against.options import Against
from ddp_perf.plugin.against.report import DuelReportWriter
from ddp_perf.render.units import counted

# Runs the duel of the cases; its last argument receives what is finished after each pair.
Run = Callable[[tuple[Side, Side], Sequence[Case], Callable[[Duel], None]], Duel]


class AgainstSession:
    """The duel of the selected cases of one pytest session."""

    def __init__(
        self, against: Against, project: Project, report: DuelReportWriter, *, run: Run
    ) -> None:
        self._against = against
        self._project = project
        self._run = run
        self._sides: tuple[Side, Side] | None = None
        self._planned: tuple[Case, ...] = ()
        self._problem: str | None = None
        self.report = report
        self.touched = Touched(touched={}, left_out={})
        self.duel: Duel | None = None
        self.command: str | None = None  # the shell command that measures the session again

    def plan(self, cases: Sequence[Case]) -> None:
        """Record the cases that the duel is to have, and check what it needs. Nothing is launched.

        Raises SideError for a side that does not exist, and ConfigError for a case that a duel
        cannot launch, or cannot tell from another one.
        """
        _check(cases)
        sides = (
            parse_side(self._against.side, "A", self._project.root),
            parse_side(".", "B", self._project.root),
        )
        if self._against.touched_only:
            self.touched = self._find_touched(cases, sides[0])
        self._planned = tuple(case for case in cases if case.key not in self.touched.left_out)
        self._sides = sides

    def of(self, case: Case) -> CaseDuel | None:
        """Return the duel of a case, or None if it has none. The first call runs that of all.

        Raises DdpPerfError, and the same error again at each later call.
        """
        if self._problem is not None:
            raise DdpPerfError(self._problem)
        if self.duel is None and case in self._planned:
            self._measure()
        found = self.duel.cases if self.duel is not None else ()
        return next((one for one in found if one.cases.b.key == case.key), None)

    def leaves_out(self, case: Case) -> bool:
        """Return whether the case has no duel on purpose, which is no lack of one."""
        left_out = self.duel.left_out if self.duel is not None else ()
        return case.key in self.touched.left_out or case.id in {one.case_id for one in left_out}

    def why_none(self, case: Case) -> str:
        """Return why the case has no duel, after ``of`` returned None."""
        if case.key in self.touched.left_out:
            return f"--ddp-touched: {self.touched.left_out[case.key]}"
        missing = (*self.duel.missing, *self.duel.left_out) if self.duel is not None else ()
        reasons = [one.reason for one in missing if one.case_id == case.id]
        if reasons:
            return reasons[0]
        return f"the duel has only the cases of the selected tests, and so not {case.id}"

    def close(self) -> None:
        """Write what was measured, and what was left out."""
        self.report.write(self.duel, self.touched)

    def how_far(self) -> str:
        """Return the progress, as "after 12 pairs of the duel"."""
        pairs = sum(len(case.pairs) for case in self.duel.cases) if self.duel is not None else 0
        return f"after {counted(pairs, 'pair')} of the duel"

    def _measure(self) -> None:
        assert self._sides is not None  # `plan` is called before any test
        try:
            self._note(self._run(self._sides, self._planned, self._note))
        except DdpPerfError as error:
            self._problem = str(error)
            raise

    def _note(self, duel: Duel) -> None:
        self.duel = msgspec.structs.replace(duel, command=self.command)

    def _find_touched(self, cases: Sequence[Case], a: Side) -> Touched:
        if a.kind != "revision" or a.commit is None:
            raise ConfigError("--ddp-touched: needs a git revision as --ddp-against")
        project = self._project
        repository = repository_root(project.root)
        sources = sources_of(cases, project.suites, project.import_paths, repository)
        return touched_cases(sources, changed_files(repository, a.commit))


def _check(cases: Sequence[Case]) -> None:
    other = next((case for case in cases if case.launcher != "forkserver"), None)
    if other is not None:
        raise ConfigError(
            f"--ddp-against: {other.suite} has launcher: {other.launcher}, and a duel launches by"
            " forkserver; choose other tests, or add --ddp-launcher=forkserver"
        )
    if len({case.tier for case in cases}) > 1:
        raise ConfigError(
            '--ddp-against: a duel is of one tier; choose -m gpu, or -m "perf and cpu"'
        )
