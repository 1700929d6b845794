"""``ddp-perf baseline …``: the baseline files, their changes, and acknowledged regressions."""

from __future__ import annotations

import datetime
import functools
import math
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from ddp_perf.baselines.save import SaveMode, Saving, acknowledge, check_reason, unacknowledged
from ddp_perf.baselines.store import BaselineStore, read_baseline
from ddp_perf.cli.command import (
    RESULTS_HELP,
    AsJson,
    BaselineDirectory,
    CommandGroup,
    Metrics,
    print_result,
)
from ddp_perf.core.baseline import Acknowledgement, Baseline
from ddp_perf.core.metric import EXACT, STEP_TIME
from ddp_perf.errors import BaselineError, ExitCode, did_you_mean
from ddp_perf.report.commands.baseline import (
    describe_acknowledgement,
    diff_lines,
    list_parts,
    log_lines,
    show_parts,
)
from ddp_perf.report.rows import saving_notes
from ddp_perf.session.baseline_diff import diff_baselines
from ddp_perf.session.gate.exact import acknowledged_as_measured
from ddp_perf.session.judge_results import promote as promote_suite
from ddp_perf.session.result import read_results

Accelerator = Annotated[
    str | None,
    typer.Option("--accelerator", metavar="KEY", help="Name of a baseline file without .json."),
]
_LONGEST = datetime.timedelta(days=366)  # of an acknowledgement: what stays is to be accepted

app = typer.Typer(cls=CommandGroup, rich_markup_mode=None)


@app.callback()
def baseline(context: typer.Context, directory: BaselineDirectory = Path("baselines")) -> None:
    """Show baseline files, store a session in them, and acknowledge known regressions."""
    context.obj = BaselineStore(directory)


@app.command("list")
def list_(context: typer.Context, as_json: AsJson = False) -> None:
    """List the baseline files with their cases, sessions, published figures, acknowledgements."""
    baselines = _all(context.obj)
    print_result(baselines, list_parts(baselines), as_json=as_json)


@app.command()
def show(
    context: typer.Context,
    accelerator: Annotated[
        str,
        typer.Argument(metavar="KEY", help="Name of a baseline file without .json, or its path."),
    ],
    case: Annotated[
        str | None, typer.Argument(metavar="[CASE]", help="Show only this case.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show the cases of one file: the reference, and the drift of the sessions since then."""
    file = Path(accelerator)
    store: BaselineStore = context.obj
    path = file if file.is_file() else store.existing_path(accelerator)
    found = read_baseline(path)
    cases = found.cases
    if case is not None:
        _check_case(case, [found])
        cases = {case: found.cases[case]}
    shown = msgspec.structs.replace(found, cases=cases)
    print_result(shown, show_parts(shown), as_json=as_json)


@app.command()
def diff(
    old: Annotated[Path, typer.Argument(metavar="A", help="A baseline file of any name.")],
    new: Annotated[
        Path, typer.Argument(metavar="B", help="Another file, or another version of it.")
    ],
    as_json: AsJson = False,
) -> None:
    """Show what B changes: levels, published figures, work, structure, sessions, machines, reasons.

    \b
    In review: ddp-perf baseline diff <(git show main:baselines/h200.json) baselines/h200.json
    Exit code:
      0  no difference
      1  differences
      4  usage: a file that cannot be read
    """
    found = diff_baselines(read_baseline(old), read_baseline(new))
    print_result(found, diff_lines(found), as_json=as_json)
    raise typer.Exit(ExitCode.RED if found.differs else ExitCode.GREEN)


@app.command()
def log(context: typer.Context, as_json: AsJson = False) -> None:
    """List every baseline that was replaced, with the date, the change and the reason."""
    baselines = _all(context.obj)
    entries = {b.accelerator: {name: c.log for name, c in b.cases.items()} for b in baselines}
    print_result(entries, log_lines(baselines), as_json=as_json)


@app.command()
def promote(
    context: typer.Context,
    results: Annotated[Path, typer.Argument(metavar="RESULTS", help=RESULTS_HELP)],
    mode: Annotated[
        str, typer.Option(metavar="MODE", help="As for --save-baseline: missing, append or accept.")
    ] = "missing",
    reason: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Why --mode accept is right.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Store an earlier session. The rules are those of pytest --save-baseline.

    \b
    Exit code:
      0  every case is stored
      1  some cases are not stored, each with the reason
      4  usage: an argument, or a file that cannot be read or written
    """
    file = read_results(results)
    if not file.complete:
        raise BaselineError(
            f"{results}: it was written while its session was still running, and only a whole"
            " session is stored; measure it again with pytest --save-baseline"
        )
    if (reason is not None) != (mode == "accept"):
        raise typer.BadParameter("--reason: --mode accept needs it, and no other mode takes it")
    if reason is not None:
        check_reason("--reason", reason)
    store: BaselineStore = context.obj
    saving = Saving(mode=_mode(mode), reason=reason)
    promoted = [promote_suite(suite, store, saving) for suite in file.suites]
    notes = {case_id: note for suite in promoted for case_id, note in saving_notes(suite).items()}
    lines = [f"{case_id}: {note}" for case_id, note in notes.items()] or ["nothing was measured"]
    print_result(notes, lines, as_json=as_json)
    whole = notes and not any(suite.not_saved for suite in promoted)
    raise typer.Exit(ExitCode.GREEN if whole else ExitCode.RED)


@app.command()
def ack(
    context: typer.Context,
    case: Annotated[str, typer.Argument(metavar="CASE", help="Id of the case.")],
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why the case may be slow.")],
    until: Annotated[str, typer.Option(metavar="DATE", help="The last day, as in 2026-12-31.")],
    metric: Metrics = None,
    at_most: Annotated[
        float | None,
        typer.Option(metavar="RATIO", help="Cover a slow-down up to this: 1.2 covers 20 %."),
    ] = None,
    results: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Cover what the session of this results file shows."),
    ] = None,
    accelerator: Accelerator = None,
) -> None:
    """Acknowledge a known regression: until that day its test is an xfail with the reason.

    It covers the slow-down of the newest stored sessions that are red, or what --at-most or
    --results state; a larger one fails. A structure and losses are covered as --results has them.
    After that day, in a year at most, the test fails again. A slow-down often affects other metrics
    of the case, too: the last line names those without an acknowledgement. A new acknowledgement
    replaces the old one; a day in the past ends it.
    """
    now = datetime.datetime.now(datetime.timezone.utc)
    day = _last_day(until, now.date())
    check_reason("--reason", reason)
    metrics = metric or [STEP_TIME.name]
    if at_most is not None and (results is not None or not set(EXACT).isdisjoint(metrics)):
        raise typer.BadParameter("--at-most: is of times, and without --results")
    if at_most is not None and not 1 < at_most < math.inf:
        raise typer.BadParameter(f"--at-most: {at_most} is no slow-down; 1.2 covers 20 %")
    store: BaselineStore = context.obj
    today = now.isoformat(timespec="seconds")
    new = [
        Acknowledgement(case=case, metric=name, reason=reason, until=day, date=today, ratio=at_most)
        for name in metrics
    ]
    if results is not None:
        suites = [one for one in read_results(results).suites if case in one.measurements]
        if not suites:
            raise BaselineError(f"{results}: there is no case {case!r}")
        new = [acknowledged_as_measured(one, suites[-1]) for one in new]
    path = store.update(
        _owner(store, case, accelerator), lambda now: functools.reduce(acknowledge, new, now)
    )
    stored = read_baseline(path)
    for one in new:
        found = stored.acknowledgement(case, one.metric) or one
        typer.echo(f"{path}: acknowledged {describe_acknowledgement(found)}")
    if others := unacknowledged(stored, case, today):
        typer.echo(f"not acknowledged, so they fail if they are gated: {', '.join(others)}")


def _last_day(until: str, today: datetime.date) -> str:
    try:
        day = datetime.date.fromisoformat(until)
    except ValueError:
        raise typer.BadParameter(f"--until: {until!r} is not a date, as in 2026-12-31") from None
    if day > (latest := today + _LONGEST):
        raise typer.BadParameter(f"--until: {until} is more than a year ahead; at most {latest}")
    return day.isoformat()


def _owner(store: BaselineStore, case: str, accelerator: str | None) -> str:
    """Return the key of the only file that has the case. Raises BaselineError if several do."""
    keys = [accelerator] if accelerator else store.accelerators()
    baselines = [read_baseline(store.existing_path(key)) for key in keys]
    _check_case(case, baselines)
    owners = [found.accelerator for found in baselines if case in found.cases]
    if len(owners) > 1:
        raise BaselineError(
            f"{case} is stored for {', '.join(owners)}; name one with --accelerator"
        )
    return owners[0]


def _check_case(case: str, baselines: list[Baseline]) -> None:
    known = {name for found in baselines for name in found.cases}
    if case not in known:
        raise BaselineError(f"no baseline has a case {case!r}{did_you_mean(case, known)}")


def _mode(text: str) -> SaveMode:
    for mode in ("missing", "append", "accept"):
        if text == mode:
            return mode
    raise typer.BadParameter(f"--mode: {text!r} is not one of missing, append, accept")


def _all(store: BaselineStore) -> list[Baseline]:
    if not store.accelerators():
        raise BaselineError(f"{store.directory}: there is no baseline file here")
    return [store.load(key) for key in store.accelerators()]
