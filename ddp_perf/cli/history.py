"""``ddp-perf history``: each case over its sessions."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
import typer.core

from ddp_perf.cli.command import RESULTS_HELP, AsJson, Metric, print_result
from ddp_perf.core.metric import STEP_TIME
from ddp_perf.errors import ExitCode, HistoryError, did_you_mean
from ddp_perf.history.records import SessionRecord, TimeSeries, record_of
from ddp_perf.history.text import audit_lines, case_parts, overview_parts, range_parts
from ddp_perf.history.trend import CaseHistory, case_history, newest_work
from ddp_perf.session.result import read_results


class ShowByDefault(typer.core.TyperGroup):
    """A group that reads ``history CASE`` as ``history show CASE``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args or (args[0] not in self.commands and args[0] != "--help"):
            args = ["show", *args]
        return super().parse_args(ctx, args)


Url = Annotated[
    str,
    typer.Option("--history", metavar="URL", help="The history that pytest --ddp-history wrote."),
]
DEFAULT_URL = "sqlite:///artifacts/history.sqlite"  # where ci/bench and ci/nightly write

app = typer.Typer(cls=ShowByDefault, rich_markup_mode=None)


@app.callback()
def history() -> None:
    """Show each case over its sessions: change points, drifts, and the newest against the first.

    Without a command, this is: history show.
    """


@app.command()
def show(
    case: Annotated[
        str | None,
        typer.Argument(metavar="[CASE]", help="Id of a case (default: all, one line each)."),
    ] = None,
    url: Url = DEFAULT_URL,
    metric: Metric = STEP_TIME.name,
    as_json: AsJson = False,
) -> None:
    """Show one case session by session, or all cases.

    \b
    Exit code:
      0  shown, whatever the sessions contain
      4  usage: an argument, no such case, or a history that cannot be read
    """
    histories = _histories(url, case, metric)
    audits = [] if as_json else _audits(url, {one.series.case.accelerator for one in histories})
    cases = (part for found in histories for part in ("", *case_parts(found)))
    shown = overview_parts(histories) if case is None else cases
    print_result(histories, [*shown, *audits], as_json=as_json)


@app.command("import")
def import_(
    files: Annotated[list[Path], typer.Argument(metavar="RESULTS.json…", help=RESULTS_HELP)],
    url: Url = DEFAULT_URL,
) -> None:
    """Append results files. A session that the history already has is not stored twice.

    \b
    Exit code:
      0  all of them are in the history
      4  usage: a file or a history that cannot be read or written; earlier files are imported
    """
    # Imported here: SQLAlchemy takes a third of a second, and no other command needs it.
    from ddp_perf.history.store import TOGETHER, HistoryStore, chunks_of

    with contextlib.closing(HistoryStore(url)) as store:
        new = sessions = 0
        for batch in chunks_of(files, TOGETHER):
            records: list[SessionRecord] = []
            try:
                for path in batch:
                    records += [record_of(suite) for suite in read_results(path).suites]
            finally:  # if a file is refused, the files before it are stored
                new += store.append(records)
            sessions += len(records)
        typer.echo(
            f"{sessions} suites of {len(files)} files: {new} new in {store.name},"
            f" {sessions - new} already there"
        )


@app.command()
def changes(
    case: Annotated[str, typer.Argument(metavar="CASE", help="Id of a case.")],
    url: Url = DEFAULT_URL,
    metric: Metric = STEP_TIME.name,
    as_json: AsJson = False,
) -> None:
    """Find the commits and versions between which a case changed.

    \b
    Exit code:
      0  no change
      1  changes, each with the sessions before and after it
      4  usage: no such case, or a history that cannot be read
    """
    histories = _histories(url, case, metric)
    print_result(
        histories,
        (part for found in histories for part in ("", *range_parts(found))),
        as_json=as_json,
    )
    changed = any(found.ranges for found in histories)
    raise typer.Exit(ExitCode.RED if changed else ExitCode.GREEN)


def _audits(url: str, accelerators: Collection[str]) -> list[str]:
    from ddp_perf.history.store import HistoryStore

    with contextlib.closing(HistoryStore(url, create=False)) as store:
        return audit_lines([one for one in store.audits() if one.accelerator in accelerators])


def _histories(url: str, case_id: str | None, metric: str) -> list[CaseHistory]:
    """Return the history of the case on each accelerator, or of all cases.

    Raises HistoryError if there is none.
    """
    found = newest_work(_series(url, case_id, metric))
    if not found:
        what = case_id or "any case"
        raise HistoryError(f"the history has no session of {what} with {metric}")
    return [case_history(series) for series in found]


def _series(url: str, case_id: str | None, metric: str) -> Iterator[TimeSeries]:
    from ddp_perf.history.store import HistoryStore

    with contextlib.closing(HistoryStore(url, create=False)) as store:
        cases = store.cases()
        ids = {case.case_id for case in cases}
        if case_id is not None and case_id not in ids:
            raise HistoryError(f"{store.name}: no case {case_id!r}{did_you_mean(case_id, ids)}")
        for case in cases:
            if case_id in (None, case.case_id):
                yield store.series(case, metric)
