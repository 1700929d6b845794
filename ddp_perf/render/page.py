"""A report as one HTML page. It uses no network, and all texts in it are escaped."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import jinja2
from markupsafe import Markup

from ddp_perf.render.model import (
    SOFT_HYPHEN,
    Part,
    Plot,
    Report,
    Section,
    Status,
    Table,
    shown_names,
)
from ddp_perf.render.visible import visible


class Link(NamedTuple):
    """A page beside this one."""

    title: str
    address: str
    is_here: bool = False


def report_page(report: Report, links: Sequence[Link] = (), shared: str = "") -> bytes:
    """Return the whole page in UTF-8.

    ``links`` lead to the other pages of a site, which read the script that draws charts from the
    file ``shared``. A page by itself has it inside.
    """
    # Imported here: charts take a third of a second, and only a page needs them.
    from ddp_perf.render.chart import page_script, pictures

    environment = _environment()
    environment.filters["pictures"] = pictures
    text = environment.get_template("page.html.j2").render(
        report=report,
        Status=Status,
        charts=page_script if _has_charts(report.sections) else None,
        links=links,
        shared=shared,
    )
    return visible(text).encode("utf-8", "replace")  # UTF-8 has no code for a lone surrogate


def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("ddp_perf.render"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"sorts": _sorts, "whole": _whole}
    environment.globals |= {
        "names": shown_names,
        "groups": _groups,
        "new_id": functools.partial(next, itertools.count()),
    }
    return environment


def _has_charts(sections: Sequence[Section]) -> bool:
    return any(
        any(isinstance(part, Plot) for part in section.parts) or _has_charts(section.sections)
        for section in sections
    )


def _whole(title: str) -> str:
    """Return a title without the places at which a narrow column may break it."""
    return title.replace(SOFT_HYPHEN, "")


def _sorts(value: object) -> Markup:
    """Return the attribute that sorts a cell. A cell without a figure is sorted last."""
    short = f"{value:.7g}" if isinstance(value, float) else value
    return Markup("") if value is None else Markup(' data-v="{}"').format(short)


def _groups(parts: Sequence[Part]) -> Iterator[tuple[str, list[Part]]]:
    """Yield neighbours of one kind together, as a page lays them out."""
    for kind, group in itertools.groupby(parts, key=_kind):
        yield kind, list(group)


def _kind(part: Part) -> str:
    if isinstance(part, Plot):
        return "plots"
    if isinstance(part, Table):
        return "table"
    return part.kind
