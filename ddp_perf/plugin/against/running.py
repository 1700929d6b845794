"""The parts of a pytest session that a duel takes: its options, the machine, a place for lines."""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

from ddp_perf.config.loading import suite_file
from ddp_perf.core.case import Case
from ddp_perf.duel.sides.preparing import prepare
from ddp_perf.duel.sources import Project
from ddp_perf.duel.values import Duel, Side
from ddp_perf.plugin.against.report import DuelReportWriter
from ddp_perf.plugin.against.session import AgainstSession
from ddp_perf.plugin.plan import Setup
from ddp_perf.plugin.progress import TerminalProgress
from ddp_perf.render.units import counted, describe_duration

_SILENCE_S = 30.0  # then the terminal gets a line


def make_against(setup: Setup, *, on_sigterm: Callable[[], NoReturn]) -> AgainstSession | None:
    """Return the duel of a pytest session, or None without ``--ddp-against``."""
    options = setup.options
    if options.against is None:
        return None
    report = DuelReportWriter(
        options.report, options.json_path, root=setup.root, import_paths=options.import_paths
    )
    run = functools.partial(run_against, setup, on_sigterm)
    return AgainstSession(options.against, setup.project, report, run=run)


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
    from ddp_perf.duel.choice import choice_text, choose_cases, default_budget_s, stored_launch_s
    from ddp_perf.duel.open_sides import open_sides
    from ddp_perf.duel.run import DuelRequest, run_duel

    options, project, progress = setup.options, setup.project, setup.progress
    capacity = setup.capacity
    assert options.against is not None  # it is called with --ddp-against alone
    with contextlib.ExitStack() as stack:
        ready_a, ready_b = (
            stack.enter_context(
                prepare(
                    side,
                    project.root,
                    on_progress=progress.say,
                    import_paths=project.import_paths,
                )
            )
            for side in sides
        )
        matched = match_cases(
            ready_a,
            ready_b,
            capacity,
            config=_suites_of(cases, project),
            ids=[case.id for case in cases],
            overrides=options.overrides,
        )
        budget_s = options.against.budget_s or default_budget_s(matched)
        matched = choose_cases(
            matched,
            budget_s=budget_s,
            launch_s=stored_launch_s(setup.store, capacity),
            fits=capacity.fits,
        )
        request = DuelRequest(
            matched=matched,
            budget_s=budget_s,
            false_alarm_rate=options.false_alarm_rate,
        )
        machine = open_sides(
            ready_a, ready_b, capacity, on_wait=progress.warn, on_sigterm=on_sigterm
        )
        open_a, open_b = stack.enter_context(machine)
        lines = _Lines(progress, on_update)
        lines.begin(*sides, len(matched.cases), request.budget_s)
        if text := choice_text(matched, budget_s):
            progress.say(text)
        return run_duel(request, open_a, open_b, capacity, on_update=lines.update)


def _suites_of(cases: Sequence[Case], project: Project) -> list[Path]:
    """Return the suite files of the cases, from the project's root on if they are in it."""
    files = [suite_file(name, project.suites) for name in {case.suite: None for case in cases}]
    found = [file.absolute() for file in files if file is not None]
    root = project.root
    return [file.relative_to(root) if file.is_relative_to(root) else file for file in found]


class _Lines:
    """The lines of a duel in pytest's output: one at its beginning, then one now and then."""

    def __init__(self, progress: TerminalProgress, on_update: Callable[[Duel], None]) -> None:
        self._progress = progress
        self._on_update = on_update
        self._shown = time.monotonic()

    def begin(self, a: Side, b: Side, cases: int, budget_s: float) -> None:
        self._progress.say(
            f"duel of {a.label} (A) and {b.label} (B): {counted(cases, 'case')}, for"
            f" {describe_duration(budget_s)} at most"
        )

    def update(self, duel: Duel) -> None:
        """Pass the duel on, and write a line if the last one is long ago."""
        self._on_update(duel)
        if time.monotonic() - self._shown < _SILENCE_S:
            return
        self._shown = time.monotonic()
        pairs = sum(len(case.pairs) for case in duel.cases)
        self._progress.say(f"duel: {counted(pairs, 'pair')} in {describe_duration(duel.wall_s)}")
