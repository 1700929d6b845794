"""``ddp-perf duel A [B]``: two sides measured in alternation, and the verdict on B."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from ddp_perf.baselines.store import BaselineStore
from ddp_perf.cli.command import (
    AsJson,
    budget_seconds,
    describe_progress,
    show,
    write_line,
)
from ddp_perf.cli.emulation import Emulate, Network, case_overrides, repeated
from ddp_perf.cli.measuring import AGAIN, check_writable, endable, going_on
from ddp_perf.core.verdict import DuelOutcome
from ddp_perf.duel.cases import MatchedCases, match_cases
from ddp_perf.duel.open_sides import open_sides
from ddp_perf.duel.run import (
    DEFAULT_TOLERANCE,
    DuelRequest,
    choice_text,
    choose_cases,
    default_budget_s,
    open_duel_log,
    run_duel,
    stored_launch_s,
)
from ddp_perf.duel.sides.preparing import parse_side, prepare
from ddp_perf.duel.values import Duel, PreparedSide, result_path, write_duel
from ddp_perf.errors import BudgetError, ConfigError, DdpPerfError, ExitCode
from ddp_perf.report.directory import duel_json, write_duel_report
from ddp_perf.report.duel.report import build_duel
from ddp_perf.session.measure.experiment import time_of
from ddp_perf.system.capacity import Capacity, find_capacity
from ddp_perf.system.host.launch_platform import check_can_launch

_RESULTS = Path("artifacts/duel")
_SIDE = (
    "a git revision, . (the tree as it is), env:NAME=VALUE,…, python:/path/to/python,"
    " torch==2.11.0, or 'command: docker run … {command}'"
)


def duel(
    a: Annotated[str, typer.Argument(metavar="A", help=f"What we had: {_SIDE}.")],
    b: Annotated[str, typer.Argument(metavar="[B]", help="What is judged, named likewise.")] = ".",
    case: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ID",
            help="Compare this case; may be repeated. [default: all, or as many of the core as the"
            " budget has room for]",
        ),
    ] = None,
    config: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help="Suite file, as each side has it; may be repeated."
            " [default: those of bench_configs/ for this machine's GPUs, else for its CPU]",
        ),
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="How long to launch at most: 90s, 10m or 1h. [default: 3m; on GPUs 10m]",
        ),
    ] = None,
    tolerance: Annotated[
        float,
        typer.Option(metavar="FRACTION", help="Sides that differ by less are EQUIVALENT."),
    ] = DEFAULT_TOLERANCE,
    emulate: Emulate = None,
    network: Network = None,
    report: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Write duel.html, duel.md and duel.json there."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Measure A and B in alternation, and judge B.

    Only ranks run in a side. The tree, the index and the branches are never changed.

    \b
    Exit code:
      0  every case is equivalent or faster
      1  a case is slower, or fails on side B alone
      4  usage: an argument, a side or a suite; nothing is judged
      75  undecided: a case needs more pairs, failed, or is not on both sides
    """
    check_can_launch()
    given_s = None if budget is None else budget_seconds(budget)
    if not 0 < tolerance < 1:
        raise ConfigError(f"--tolerance: {tolerance} is not between 0 and 1")
    overrides = case_overrides(emulate, network)
    repeat = (*_repeated(config or (), tolerance), *repeated(emulate, network))
    finished = _Finished(report, as_json, repeat)
    try:
        with endable(AGAIN) as ending, contextlib.ExitStack() as stack:
            root = Path.cwd()
            parsed = (parse_side(a, "A", root), parse_side(b, "B", root))
            first, second = (
                stack.enter_context(prepare(side, root, on_progress=write_line)) for side in parsed
            )
            capacity = find_capacity()
            matched = match_cases(
                first,
                second,
                capacity,
                config=config or (),
                ids=case or (),
                overrides=overrides,
            )
            budget_s = default_budget_s(matched) if given_s is None else given_s
            if not case:
                matched = _chosen(matched, capacity, budget_s)
            request = DuelRequest(matched=matched, budget_s=budget_s, tolerance=tolerance)
            check_writable(*filter(None, (_RESULTS, report)))
            _run(request, first, second, capacity, finished)
        with endable() as showing:
            finished.show()
        if showing.code is not None:  # interrupted while the report was written
            ending = showing
            finished.show()
    except DdpPerfError:
        finished.name_file()
        raise
    ending.exit(finished.exit_code)


def _chosen(matched: MatchedCases, capacity: Capacity, budget_s: float) -> MatchedCases:
    """Return the cases that the budget has room for, and say which if it has none for some."""
    store = BaselineStore(Path.cwd() / "baselines")
    matched = choose_cases(
        matched, budget_s=budget_s, launch_s=stored_launch_s(store, capacity), fits=capacity.fits
    )
    if text := choice_text(matched, budget_s):
        write_line(text)
    return matched


def _run(
    request: DuelRequest,
    a: PreparedSide,
    b: PreparedSide,
    capacity: Capacity,
    finished: _Finished,
) -> None:
    """Run the duel. What an interrupt leaves of it is where the same command goes on."""
    with open_sides(a, b, capacity, on_wait=write_line) as (first, second):
        log = open_duel_log(_RESULTS, request, a, b, capacity)
        try:
            with going_on(log, request.budget_s - time_of(log.entries)) as progress:

                def note(duel: Duel) -> None:
                    finished.keep(duel)
                    progress.show(describe_progress(duel))

                finished.keep(run_duel(request, first, second, capacity, on_update=note, log=log))
        except BudgetError:
            log.discard()  # another budget is another duel
            raise
        finally:
            finished.write()
        log.discard()


class _Finished:
    """The part of a duel that is finished: it is kept in a file, and shown at the end."""

    def __init__(self, report: Path | None, as_json: bool, repeat: tuple[str, ...]) -> None:
        self._report = report
        self._as_json = as_json
        self._repeat = repeat
        self._duel: Duel | None = None
        self._path: Path | None = None

    def name_file(self) -> None:
        """Name the file with what was measured before an error."""
        if self._path is not None:
            write_line(f"what was measured is in {self._path}")

    def keep(self, duel: Duel) -> None:
        """Keep what there is so far."""
        self._duel = msgspec.structs.replace(duel, repeat=self._repeat)

    def write(self) -> None:
        """Write the results file if there are launches in it. Raises ResultsError."""
        if self._duel and any(case.aa or case.failures for case in self._duel.cases):
            self._path = result_path(_RESULTS, self._duel)
            write_duel(self._path, self._duel)

    def show(self) -> None:
        """Show the result, and write the report.

        The result is also shown if the report cannot be written, which raises ResultsError.
        """
        if self._duel is None or self._path is None:
            return
        files = [self._path]
        try:
            if self._report is not None:
                files += write_duel_report(self._report, self._duel)
        finally:
            if self._as_json:
                typer.echo(duel_json(self._duel))
            typer.echo(f"written: {', '.join(map(str, files))}", err=self._as_json)
            if not self._as_json:
                show([build_duel(self._duel)])

    @property
    def exit_code(self) -> ExitCode:
        """The exit code of a duel that was not interrupted."""
        outcome = DuelOutcome.UNDECIDED if self._duel is None else self._duel.outcome
        if self._duel is not None and (outcome is DuelOutcome.SLOWER or self._duel.broken):
            return ExitCode.RED
        return ExitCode.UNDECIDED if outcome is DuelOutcome.UNDECIDED else ExitCode.GREEN


def _repeated(config: Sequence[Path], tolerance: float) -> tuple[str, ...]:
    """Return the options that another duel of the same cases needs, so that it asks the same."""
    options = [f"--config={file}" for file in config]
    if tolerance != DEFAULT_TOLERANCE:
        options.append(f"--tolerance={tolerance:g}")
    return tuple(options)
