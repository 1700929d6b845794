"""Commands that read results files: ``judge``, ``compare``, ``explain`` and ``report``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer

from ddp_perf.baselines.store import BaselineStore
from ddp_perf.cli.command import RESULTS_HELP, AsJson, BaselineDirectory, print_result, show
from ddp_perf.errors import ExitCode
from ddp_perf.render.model import Section, notes
from ddp_perf.render.terminal import Block
from ddp_perf.report.case_text import explanation_lines
from ddp_perf.report.commands.comparison import (
    build_comparison,
    comparison_file,
    machines_file,
    machines_parts,
)
from ddp_perf.report.commands.judged_series import series_file, series_parts
from ddp_perf.report.step_terms import advice_lines, rank_lines, term_parts
from ddp_perf.report.suite_notes import headline, node_lines
from ddp_perf.scaling.machines import side_by_side
from ddp_perf.session.compare_sessions import (
    ComparedSession,
    compare_sessions,
    machine_differences,
    one_side,
)
from ddp_perf.session.judge_results import RecordedSession, judge_results
from ddp_perf.session.result import SuiteResult, joined_results, read_results

# ``ddp-perf judge RESULTS.json…``: results files judged by stored baselines, oldest first.


def judge(
    results: Annotated[
        list[Path],
        typer.Argument(metavar="RESULTS.json…", help=RESULTS_HELP),
    ],
    directory: BaselineDirectory = Path("baselines"),
    append: Annotated[
        bool,
        typer.Option(
            "--append",
            help="Store each session after it is judged, as pytest --save-baseline=append does, so"
            " that it judges the later ones. Without this option nothing is written.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Judge results files by the stored baselines, oldest first, without measuring.

    Each session is judged by the stored sessions that are older. With --append into an empty
    directory, or into a copy of an earlier state, the series is replayed as it was measured.

    \b
    Exit code:
      0  pass: no session has a regression, and the newest one of each suite passed
      1  regression: in any session a slower case or a missed target that is not acknowledged, a
         failed case, other work or another machine, or more work in a step
      4  usage: an argument, or a file that cannot be read or stored; nothing is written
      75  undecided: so is the newest session, or it is suspect, invalid, without a baseline, or
         slower as acknowledged
    """
    series = judge_results(list(_read(results)), BaselineStore(directory), append_each=append)
    print_result(series_file(series), series_parts(series), as_json=as_json)
    raise typer.Exit(series.conclusion.exit_code)


def _read(paths: Iterable[Path]) -> Iterator[RecordedSession]:
    for path in paths:
        file = read_results(path)
        if not file.suites:
            typer.echo(f"ddp-perf: {path}: nothing was measured", err=True)
        for suite in file.suites:
            yield RecordedSession(file=str(path), complete=file.complete, result=suite)


# ``ddp-perf compare``: the rule of the gate, for results files of two states of the code.


_BETWEEN = "vs"


def compare(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="OLD.json… [vs] NEW.json…",
            help="Results of the older code, then of the newer one, each written by pytest"
            " --ddp-json. Write vs between several of each.",
        ),
    ],
    directory: BaselineDirectory = Path("baselines"),
    as_json: AsJson = False,
) -> None:
    """Judge results of newer code by results of older code, both of one machine.

    One file of each side: ddp-perf compare main.json branch.json. Several sessions of each side
    show how sessions differ, and so find smaller slow-downs; measure the sides in turn:
    ddp-perf compare main.json main-2.json vs branch.json branch-2.json

    Results of two machines (other GPUs, another link, another host) are set side by side, without
    a verdict.

    \b
    Exit code:
      0  pass: nothing is slower, and every case was compared
      1  regression: a slower or failed case, other work, or another structure
      4  usage: an argument, or files that cannot be read or compared
      75  undecided, suspect or invalid, a case that is missing in one file, or
         two machines
    """
    old, new = (one_side(_read_side(paths)) for paths in _sides(files))
    if differences := machine_differences(old, new):
        found = side_by_side(old, new, differences, BaselineStore(directory))
        print_result(machines_file(found), machines_parts(found), as_json=as_json)
        raise typer.Exit(ExitCode.UNDECIDED)
    comparison = compare_sessions(old, new)
    print_result(comparison_file(comparison), [build_comparison(comparison)], as_json=as_json)
    raise typer.Exit(comparison.conclusion.exit_code)


def _sides(files: Sequence[Path]) -> tuple[Sequence[Path], Sequence[Path]]:
    """Return the files before and after "vs", which may be left out between two files."""
    names = [str(file) for file in files]
    places = [place for place, name in enumerate(names) if name == _BETWEEN]
    if not places and len(files) == 2:
        return files[:1], files[1:]
    if len(places) == 1 and 0 < places[0] < len(files) - 1:
        return files[: places[0]], files[places[0] + 1 :]
    raise typer.BadParameter(
        f"{' '.join(names)}: which files are older, and which newer? Write: ddp-perf compare"
        f" OLD.json… {_BETWEEN} NEW.json…"
    )


def _read_side(paths: Sequence[Path]) -> list[ComparedSession]:
    files = [(str(path), read_results(path)) for path in paths]
    return [
        ComparedSession(name=name, complete=file.complete, suites=file.suites)
        for name, file in files
    ]


# ``ddp-perf explain RESULTS.json``: the time of each case by its parts, and advice.


def explain(
    results: Annotated[Path, typer.Argument(metavar="RESULTS.json", help=RESULTS_HELP)],
) -> None:
    """Explain where the time of each case goes, why it became slower, and what would help.

    The results file already contains all of this. Nothing is measured again.
    """
    parts = (part for suite in read_results(results).suites for part in ("", *_explained(suite)))
    show(parts)


def _explained(suite: SuiteResult) -> Iterator[Block]:
    yield headline(suite)
    terms = [*term_parts(suite)]
    if not suite.trains:
        yield "this suite measures collectives: their steps have no parts"
    elif not terms:
        yield "no launch profiled its steps; measure again with this version of ddp-perf"
    yield from terms
    for case_id in suite.summaries if terms else ():
        why = suite.explanations.get(case_id)
        lines = [
            *(explanation_lines(why) if why else ()),
            *rank_lines(suite, case_id),
            *node_lines(suite, case_id),
            *advice_lines(suite, case_id),
        ]
        yield Section(title=case_id, parts=notes(lines))


# ``ddp-perf report RESULTS.json…``: the HTML report of earlier sessions.


def report(
    results: Annotated[list[Path], typer.Argument(metavar="RESULTS.json…", help=RESULTS_HELP)],
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="DIR", help="Directory of the files.")
    ] = Path("artifacts/report"),
    history: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Also show each case's sessions in this history."),
    ] = None,
) -> None:
    """Write the HTML report of a session, and its figures in the formats of other tools.

    Several files are one report, if each has other suites.

    pytest --ddp-report writes the same files when a session ends. Nothing is measured or judged
    again. The report also shows a self-test of the same machine in artifacts/selftest.

    \b
    Exit code:
      0  written
      4  usage: a file that cannot be read, or written
    """
    # Imported here: plotting takes half a second to import, and most commands do not need it.
    from ddp_perf.report.directory import write_report
    from ddp_perf.report.source import (
        SELFTEST,
        ReportSource,
        audit_lines_for,
        curve_for,
        history_points_for,
    )

    file = joined_results(results)
    source = ReportSource(
        suites=file.suites,
        complete=file.complete,
        curve=curve_for(file.suites, SELFTEST),
        sessions=history_points_for(file.suites, history) if history is not None else {},
        audits=tuple(audit_lines_for(file.suites, history)) if history is not None else (),
    )
    report = write_report(output, source)
    typer.echo(f"{report.status.value}: {report.headline}")
    typer.echo(f"report: {output / report.page}")
