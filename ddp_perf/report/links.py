"""The links that a suite of collectives measures: latency, bandwidth, and their changes."""

from __future__ import annotations

from collections.abc import Sequence

from ddp_perf.config.network import network_text
from ddp_perf.render.model import Column, Note, Table, figures, notes
from ddp_perf.render.units import ABSENT, layout_text, short_number, short_percent
from ddp_perf.session.result import LinkFinding, SuiteResult
from ddp_perf.stats.link import Link, LinkFit, Part

_COLUMNS = (
    Column(title="ring model (fitted)", words=True),
    *figures("ranks", "latency µs", "95 % interval", "GB/s", "95 % interval"),
    Column(title="misfit", meaning="how far the fit is from the measured times, in the mean"),
    Column(title="lat. ×", meaning="time of the latency ÷ that of the baseline"),
    Column(title="byte ×", meaning="time of a byte ÷ that of the baseline"),
)


def link_parts(result: SuiteResult) -> tuple[Table | Note, ...]:
    """Return the table of links, if one was fitted, and the notes."""
    table = link_table(result)
    return (*([table] if table.rows else []), *notes(link_notes(result)))


def link_table(result: SuiteResult) -> Table:
    """Return a row for each link that was fitted."""
    rows = (
        (f"{link.kind}{_settings(link)}", _layout(link), *_fit_cells(link.fit), *_shift_cells(link))
        for link in result.links
        if link.fit is not None
    )
    return Table.of_texts(_COLUMNS, rows)


def link_notes(result: SuiteResult) -> list[str]:
    """Return a note on each link without a fit, and on each slower latency or bandwidth."""
    unfitted = [_name(link) for link in result.links if link.fit is None]
    texts = []
    if unfitted:
        texts.append(
            f"no latency and bandwidth of {'; '.join(unfitted)}: too few sizes were measured"
            " without disturbance, or their times do not determine both"
        )
    texts += [_slower(link, part) for link in result.links for part in link.slower]
    if (network := _network(result.links)) is not None:
        texts.append(f"network of emulated cases over this link: {network}")
    return texts


def _network(links: Sequence[LinkFinding]) -> str | None:
    """Return the links of the all-reduces of most ranks, within a node and between nodes."""
    known = sorted(
        (link for link in links if link.kind == "all_reduce" and link.fit and not link.env),
        key=lambda link: link.ranks,
    )
    within = [link.fit for link in known if link.nodes == 1 and link.fit is not None]
    if not within:
        return None
    across = [(link.fit, link.ranks // link.nodes) for link in known if link.nodes > 1]
    inter, per_node = across[-1] if across else (None, 0)
    return network_text(within[-1], inter, per_node=per_node)


def _slower(link: LinkFinding, part: Part) -> str:
    assert link.before is not None  # it was compared
    assert link.fit is not None
    assert link.shift is not None
    assert link.tolerance is not None
    shift = link.shift.latency if part == "latency" else link.shift.bandwidth
    sessions = "it is one session: how sessions differ is unknown"
    if shift.sessions is not None:
        sessions = f"its sessions: {shift.sessions[0]:.2f} to {shift.sessions[1]:.2f} ×"
    return (
        f"SLOWER LINK: {_name(link)}: {part} {_size(link.before, part)} →"
        f" {_size(link.fit.link, part)}, {shift.ratio:.2f} × the time of the baseline of"
        f" {str(link.baseline_date)[:10]} (tolerance {short_percent(link.tolerance)};"
        f" {sessions}): training over this link may be slower for this reason alone"
    )


def _size(link: Link, part: Part) -> str:
    if part == "latency":
        return f"{short_number(link.latency_s * 1e6)} µs"
    return f"{short_number(link.bytes_per_s / 1e9)} GB/s"


def _name(link: LinkFinding) -> str:
    ranks = f"{link.ranks} ranks" if link.nodes == 1 else f"{_layout(link)} ranks between nodes"
    return f"{link.kind}, {ranks}{_settings(link)}"


def _layout(link: LinkFinding) -> str:
    """Return the ranks: ``8`` of one node, ``2×8`` of two nodes."""
    return layout_text(link.ranks, link.ranks // link.nodes)


def _settings(link: LinkFinding) -> str:
    return "".join(f" {name}={value}" for name, value in link.env.items())


def _fit_cells(fit: LinkFit) -> list[str]:
    (quick, slow), (narrow, wide) = fit.latency_s, fit.bytes_per_s
    return [
        short_number(fit.link.latency_s * 1e6),
        f"{short_number(quick * 1e6)}–{short_number(slow * 1e6)}",
        short_number(fit.link.bytes_per_s / 1e9),
        f"{short_number(narrow / 1e9)}–{short_number(wide / 1e9)}",
        f"{fit.misfit:.0%}",
    ]


def _shift_cells(link: LinkFinding) -> list[str]:
    if link.shift is None:
        return [ABSENT] * 2
    return [f"{shift.ratio:.2f}" for shift in (link.shift.latency, link.shift.bandwidth)]
