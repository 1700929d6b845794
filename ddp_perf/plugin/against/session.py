"""The duels of a pytest session: they run, and their report and summary are written."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import NoReturn

import msgspec
import pytest

from ddp_perf.config.loading import suite_file
from ddp_perf.core.case import Case
from ddp_perf.duel.sides.preparing import parse_side, prepare
from ddp_perf.duel.touched import Project, Touched, sources_of, touched_cases
from ddp_perf.duel.values import CaseDuel, Duel, MissingSide, Side, write_duel
from ddp_perf.errors import ConfigError, DdpPerfError
from ddp_perf.plugin.options import Against
from ddp_perf.plugin.plan import Setup
from ddp_perf.plugin.progress import TerminalProgress
from ddp_perf.render.annotations import tell_github
from ddp_perf.render.checkout import Checkout
from ddp_perf.render.units import counted, describe_duration
from ddp_perf.system.git import changed_since
from ddp_perf.system.host.termination import sigterm_calls

# The files of a duel: ``--ddp-report``, ``--ddp-json``, and what a GitHub job shows.


class DuelReportWriter:
    """The files of the duel of one pytest session. Without a path it does nothing.

    Rendering is imported late: it is slow to import, and collection does not need it.
    """

    def __init__(self, setup: Setup) -> None:
        self._options, self._root = setup.options, setup.root
        self.lines: list[str] = []  # for the terminal
        self.errors: list[str] = []  # each fails the session

    def write(self, duel: Duel) -> None:
        """Write the files. An error is appended to ``errors``: it must not end the session."""
        results, directory = self._options.json_path, self._options.report
        try:
            if results is not None:
                write_duel(results, duel)
                self.lines.append(f"results: {results}")
            if directory is not None:
                self._write_report(directory, duel)
        except DdpPerfError as error:
            self.errors.append(f"the duel: {error}")

    def _write_report(self, directory: Path, duel: Duel) -> None:
        from ddp_perf.render.markdown import report_markdown
        from ddp_perf.report.directory import write_duel_report
        from ddp_perf.report.duel.report import build_duel

        checkout = Checkout.of_job(self._options.import_paths, self._root, os.environ)
        write_duel_report(directory, duel, checkout)
        report = build_duel(duel)
        lines, errors = tell_github(report, report_markdown(report), os.environ, checkout)
        self.errors += errors
        self.lines += [*lines, f"report: {directory / report.page}"]


# The duel of a pytest session: what it compares, and its one run at the first request.


class AgainstSession:
    """The duel of the selected cases of one pytest session."""

    def __init__(
        self, against: Against, setup: Setup, *, on_sigterm: Callable[[], NoReturn]
    ) -> None:
        self._against = against
        self._setup = setup
        self._on_sigterm = on_sigterm
        self._sides: tuple[Side, Side] | None = None
        self._planned: tuple[Case, ...] = ()
        self._problem: str | None = None
        self.report = DuelReportWriter(setup)
        self.touched = Touched(touched={}, left_out={})
        self.duel: Duel | None = None
        self.command: str | None = None  # the shell command that measures the session again

    def plan(self, cases: Sequence[Case]) -> None:
        """Record the cases that the duel is to have, and check what it needs. Nothing is launched.

        Raises SideError for a side that does not exist, and ConfigError for a case that a duel
        cannot launch, or cannot tell from another one.
        """
        _check(cases)
        root = self._setup.root
        sides = parse_side(self._against.side, "A", root), parse_side(".", "B", root)
        if self._against.touched_only:
            self.touched = self._find_touched(cases, sides[0])
        self._planned = tuple(case for case in cases if case.key not in self.touched.left_out)
        self._sides = sides
        if cases and not self._planned:
            self._note(_empty_duel(sides))

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
        if self.duel is not None:
            self.report.write(self.duel)

    def how_far(self) -> str:
        """Return the progress, as "after 12 pairs of the duel"."""
        pairs = sum(len(case.pairs) for case in self.duel.cases) if self.duel is not None else 0
        return f"after {counted(pairs, 'pair')} of the duel"

    def _measure(self) -> None:
        assert self._sides is not None  # `plan` is called before any test
        try:
            self._note(
                run_against(self._setup, self._on_sigterm, self._sides, self._planned, self._note)
            )
        except DdpPerfError as error:
            self._problem = str(error)
            raise

    def _note(self, duel: Duel) -> None:
        untouched = tuple(
            MissingSide(case_id=case_id, reason=f"--ddp-touched: {why}")
            for (_, case_id), why in self.touched.left_out.items()
        )
        self.duel = msgspec.structs.replace(duel, command=self.command, untouched=untouched)

    def _find_touched(self, cases: Sequence[Case], a: Side) -> Touched:
        if a.kind != "revision" or a.commit is None:
            raise ConfigError("--ddp-touched: needs a git revision as --ddp-against")
        sources = sources_of(cases, self._setup.project)
        return touched_cases(sources, changed_since(self._setup.root, a.commit))


def _empty_duel(sides: tuple[Side, Side]) -> Duel:
    """Return the duel of no case: no changed file can touch one."""
    return Duel(
        a=sides[0],
        b=sides[1],
        began=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        wall_s=0.0,
        budget_s=0.0,
        false_alarm_rate=0.0,
        alpha=0.0,
        cases=(),
    )


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


# The parts of a pytest session that a duel takes: its options, the machine, a place for lines.


_SILENCE_S = 30.0  # then the terminal gets a line


def make_against(setup: Setup, *, on_sigterm: Callable[[], NoReturn]) -> AgainstSession | None:
    """Return the duel of a pytest session, or None without ``--ddp-against``."""
    against = setup.options.against
    return None if against is None else AgainstSession(against, setup, on_sigterm=on_sigterm)


def run_against(
    setup: Setup,
    on_sigterm: Callable[[], NoReturn],
    sides: tuple[Side, Side],
    cases: Sequence[Case],
    on_update: Callable[[Duel], None],
) -> Duel:
    """Run the duel of the cases, as long as the options allow.

    ``on_update`` receives what is finished. Raises DdpPerfError.
    """
    # Imported here: judging needs scipy, a third of a second that collection can do without.
    from ddp_perf.duel.cases import match_cases
    from ddp_perf.duel.open_sides import open_sides
    from ddp_perf.duel.run import (
        DuelRequest,
        choice_text,
        choose_cases,
        default_budget_s,
        run_duel,
        stored_launch_s,
    )

    options, project, progress = setup.options, setup.project, setup.progress
    capacity = setup.capacity
    assert options.against is not None  # it is called with --ddp-against alone
    ready = functools.partial(
        prepare, root=project.root, on_progress=progress.say, import_paths=project.import_paths
    )
    with ready(sides[0]) as a, ready(sides[1]) as b:
        matched = match_cases(
            a,
            b,
            capacity,
            config=_suites_of(cases, project),
            ids=[case.id for case in cases],
            overrides=options.overrides,
        )
        budget_s = options.against.budget_s or default_budget_s(matched)
        launch_s = stored_launch_s(setup.store, capacity)
        matched = choose_cases(matched, budget_s=budget_s, launch_s=launch_s, fits=capacity.fits)
        request = DuelRequest(
            matched=matched, budget_s=budget_s, false_alarm_rate=options.false_alarm_rate
        )
        machine = open_sides(a, b, capacity, on_wait=progress.warn)
        with machine as (open_a, open_b), sigterm_calls(on_sigterm):
            progress.say(
                f"duel of {a.side.label} (A) and {b.side.label} (B):"
                f" {counted(len(matched.cases), 'case')}, for {describe_duration(budget_s)} at most"
            )
            if text := choice_text(matched, budget_s):
                progress.say(text)
            update = _with_lines(progress, on_update)
            return run_duel(request, open_a, open_b, capacity, on_update=update)


def _suites_of(cases: Sequence[Case], project: Project) -> list[Path]:
    """Return the suite files of the cases, from the project's root on if they are in it."""
    files = [suite_file(name, project.suites) for name in {case.suite: None for case in cases}]
    found = [file.absolute() for file in files if file is not None]
    root = project.root
    return [file.relative_to(root) if file.is_relative_to(root) else file for file in found]


def _with_lines(
    progress: TerminalProgress, on_update: Callable[[Duel], None]
) -> Callable[[Duel], None]:
    """Return what passes the duel on, and writes a line if the last one is long ago."""
    shown = time.monotonic()

    def update(duel: Duel) -> None:
        nonlocal shown
        on_update(duel)
        if time.monotonic() - shown >= _SILENCE_S:
            shown = time.monotonic()
            pairs = sum(len(case.pairs) for case in duel.cases)
            progress.say(f"duel: {counted(pairs, 'pair')} in {describe_duration(duel.wall_s)}")

    return update


# The duel in the summary of a pytest session.


def show_duel(terminalreporter: pytest.TerminalReporter, against: AgainstSession) -> None:
    """Write the table of the duel."""
    # Imported here: rich and scipy are slow to import, and collection does not need them.
    from ddp_perf.render.terminal import report_text
    from ddp_perf.report.duel.report import build_duel

    width = terminalreporter._tw.fullwidth
    if against.duel is not None:
        terminalreporter.section("duel")
        for line in report_text(build_duel(against.duel), width).splitlines():
            terminalreporter.write_line(line)
