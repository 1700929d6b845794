"""``ddp-perf export``: sessions in the format of another tool."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer

from ddp_perf.cli.command import RESULTS_HELP
from ddp_perf.cli.history import DEFAULT_URL
from ddp_perf.core.secret import without_passwords
from ddp_perf.errors import HistoryError, did_you_mean
from ddp_perf.history.records import SessionRecord, record_of
from ddp_perf.render.units import counted
from ddp_perf.report.export import (
    OTAVA_GROUP,
    action_benchmark_json,
    asv_files,
    bencher_json,
    history_csv,
    otava_files,
    otlp_lines,
    prometheus_text,
)
from ddp_perf.report.mlflow import log_sessions
from ddp_perf.session.result import read_results
from ddp_perf.system.files import write_files
from ddp_perf.system.git import branch_of, commit_dates, repository_root

Records = Sequence[SessionRecord]


def _asv(records: Records) -> Iterator[tuple[str, str]]:
    here = repository_root(Path.cwd())
    yield from asv_files(records, str(here), branch_of(here) or "HEAD", commit_dates(here))


_FILES: dict[str, Callable[[Records], str]] = {
    "bencher": bencher_json,
    "csv": history_csv,
    "github-action-benchmark": action_benchmark_json,
    "otlp": otlp_lines,
    "prometheus": prometheus_text,
}
# Several files each. Their values: the command that reads them, in the directory.
_DIRECTORIES: dict[str, tuple[Callable[[Records], Iterator[tuple[str, str]]], str]] = {
    "asv": (_asv, "asv publish && asv preview"),
    "otava": (otava_files, f"otava analyze {OTAVA_GROUP} --config-file otava.yaml"),
}
_MLFLOW = "mlflow"  # a store, which its client writes
_FORMATS = sorted([*_FILES, *_DIRECTORIES, _MLFLOW])


def _known(name: str) -> str:
    if name not in _FORMATS:
        all_of_them = ", ".join(_FORMATS)
        raise typer.BadParameter(
            f"{name!r} is not one of {all_of_them}{did_you_mean(name, _FORMATS)}"
        )
    return name


def export(
    format_: Annotated[
        str,
        typer.Argument(metavar="FORMAT", callback=_known, help=f"One of {', '.join(_FORMATS)}."),
    ],
    out: Annotated[
        str,
        typer.Option(
            "--out",
            metavar="PATH",
            help="The file; for asv and otava a directory; for mlflow the URI of a store, such as"
            " sqlite:///mlflow.db.",
        ),
    ],
    results: Annotated[
        list[Path] | None, typer.Argument(metavar="[RESULTS.json…]", help=RESULTS_HELP)
    ] = None,
    url: Annotated[
        str | None,
        typer.Option(
            "--history",
            metavar="URL",
            help=f"The history that pytest --ddp-history wrote. [default: {DEFAULT_URL}]",
        ),
    ] = None,
) -> None:
    """Write sessions in the format of another tool: of a history, or of results files.

    csv, otava, asv, otlp and mlflow have all sessions; bencher, github-action-benchmark and
    prometheus have the newest one of each suite. The history has no failed launches, and so no
    format has them.

    \b
    Exit code:
      0  written
      4  usage: an argument, no session, or a file that cannot be read or written
    """
    if results and url is not None:
        raise typer.BadParameter("--history and RESULTS.json: give one of them")
    records = _of_files(results) if results else _of_history(url or DEFAULT_URL)
    written = f"{counted(len(records), 'session')} in {without_passwords(out)}"
    if format_ == _MLFLOW:
        log_sessions(records, out)
        typer.echo(f"{written}: mlflow ui --backend-store-uri {without_passwords(out)}")
    elif format_ in _FILES:
        path, text = Path(out), _FILES[format_](records)
        write_files(path.parent, [(path.name, _encoded(text))])
        typer.echo(written)
    else:
        files, command = _DIRECTORIES[format_]
        write_files(Path(out), ((name, _encoded(text)) for name, text in files(records)))
        typer.echo(f"{written}: cd {out} && {command}")


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "replace")


def _of_files(paths: Sequence[Path]) -> list[SessionRecord]:
    records = [record_of(suite) for path in paths for suite in read_results(path).suites]
    if not records:
        raise HistoryError(f"{', '.join(map(str, paths))}: nothing was measured")
    return sorted(records, key=lambda record: (record.info.date, record.info.started))


def _of_history(url: str) -> list[SessionRecord]:
    # Imported here: SQLAlchemy takes a third of a second, and most commands need none.
    from ddp_perf.history.store import HistoryStore

    with contextlib.closing(HistoryStore(url, create=False)) as store:
        if records := store.records():
            return records
        raise HistoryError(f"{store.name}: it has no session; pytest --ddp-history adds them")
