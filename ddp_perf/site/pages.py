"""The files of a site: an overview, a page for each case, regressions, machines and the gate."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from ddp_perf.history.standing import State
from ddp_perf.render.chart import page_script
from ddp_perf.render.model import Report
from ddp_perf.render.page import Link, report_page
from ddp_perf.site.case_page import case_page
from ddp_perf.site.gate_page import gate_page
from ddp_perf.site.links import CASES
from ddp_perf.site.machines_page import machines_page
from ddp_perf.site.overview import overview
from ddp_perf.site.regressions_page import regressions_page
from ddp_perf.site.views import SiteViews
from ddp_perf.system.files import write_files

INDEX = "index.html"
_REGRESSIONS = "regressions.html"
_CHARTS = "charts.js"  # the only file that pages share
_PAGES: dict[str, tuple[str, Callable[[SiteViews], Report]]] = {
    INDEX: ("Cases", overview),
    _REGRESSIONS: ("Regressions", regressions_page),
    "machines.html": ("Machines", machines_page),
    "gate.html": ("The gate", gate_page),
}


def write_site(directory: Path, views: SiteViews) -> list[Path]:
    """Write all pages, and return their paths. Raises ResultsError, which names the file.

    Each file is replaced as a whole. The overview comes last: it never links to a page that is not
    there yet.
    """
    written = write_files(directory / CASES, _case_pages(views))
    return [*written, *write_files(directory, _other_pages(views))]


def _case_pages(views: SiteViews) -> Iterator[tuple[str, bytes]]:
    links = _links(views, here="", up="../")
    for view in views.cases:
        yield view.file, report_page(case_page(view), links, f"../{_CHARTS}")


def _other_pages(views: SiteViews) -> Iterator[tuple[str, bytes]]:
    yield _CHARTS, page_script().encode()
    for name, (_, page) in reversed(_PAGES.items()):
        yield name, report_page(page(views), _links(views, here=name), _CHARTS)


def _links(views: SiteViews, *, here: str, up: str = "") -> list[Link]:
    opened = sum(one.state is State.OPEN for view in views.cases for one in view.open)
    titles = {name: title for name, (title, _) in _PAGES.items()}
    titles[_REGRESSIONS] += f" ({opened} open)"
    return [Link(title, up + name, name == here) for name, title in titles.items()]
