"""``ddp-perf site``: static pages of all sessions."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Annotated

import typer

from ddp_perf.cli.history import DEFAULT_URL, Url
from ddp_perf.render.units import counted


def site(
    url: Url = DEFAULT_URL,
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="The directory that the pages are written to.")
    ] = Path("site"),
) -> None:
    """Write static pages of all sessions: an overview, and a page for each case.

    They need no server and no network: put them on GitHub Pages or S3, or open DIR/index.html.

    \b
    Exit code:
      0  written, whatever the sessions contain
      4  usage: an argument, a history that cannot be read or has no session, or a page that cannot
         be written
    """
    # Imported here: SQLAlchemy and charts take half a second, which other commands do not need.
    from ddp_perf.history.store import HistoryStore
    from ddp_perf.site.pages import INDEX, write_site
    from ddp_perf.site.views import views_of

    with contextlib.closing(HistoryStore(url, create=False)) as store:
        views = views_of(store)
    write_site(out, views)
    typer.echo(f"{counted(len(views.cases), 'case')}: {out / INDEX}")
