"""A report as one HTML page. It uses no network, and all texts in it are escaped."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import jinja2
from markupsafe import Markup

from ddp_perf.render.model import SOFT_HYPHEN, Part, Plot, Report, Status, Table
from ddp_perf.render.terminal import shown_names
from ddp_perf.report.columns import percent_text


def report_page(report: Report) -> bytes:
    """Return the whole page in UTF-8."""
    template = environment().get_template("model.html.j2")
    text = template.render(report=report, Status=Status, groups=_groups)
    return text.encode("utf-8", "replace")  # UTF-8 has no code for a lone surrogate


def environment() -> jinja2.Environment:
    """Return the environment of the page templates, with their filters."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("ddp_perf.report.html"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"percent": percent_text, "sorts": _sorts, "whole": _whole}
    environment.globals["names"] = _names
    return environment


def _whole(title: str) -> str:
    """Return a title without the places at which a narrow column may break it."""
    return title.replace(SOFT_HYPHEN, "")


def _sorts(value: object) -> Markup:
    """Return the attribute that sorts a cell. A cell without a figure is sorted last."""
    return Markup("") if value is None else Markup(' data-v="{}"').format(value)


def _names(table: Table) -> dict[str, str]:
    """Return what a page shows for each first cell."""
    return shown_names(table)


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
