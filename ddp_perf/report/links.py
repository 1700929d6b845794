"""The link under a suite of collectives: latency, bandwidth, and what got slower of the two."""

from __future__ import annotations

from ddp_perf.report.layout import plain_table, rendered
from ddp_perf.session.result import LinkFinding, SuiteResult
from ddp_perf.stats.link import LinkFit, Shift


def link_lines(result: SuiteResult, width: int) -> list[str]:
    """A table of what was fitted; empty where nothing could be."""
    fitted = [(link, link.fit) for link in result.links if link.fit is not None]
    if not fitted:
        return []
    table = plain_table()
    table.add_column("ring model\n(fitted)", overflow="fold")
    for heading in (
        *("latency\nµs", "95 %\ninterval", "GB/s\n", "95 %\ninterval"),
        *("mis-\nfit", "latency\nto base", "byte\nto base"),
    ):
        table.add_column(heading, justify="right", no_wrap=True)
    for link, fit in fitted:
        table.add_row(_name(link), *_fit_cells(fit), *_shift_cells(link))
    return ["", *rendered(table, width)]


def link_notes(result: SuiteResult) -> list[str]:
    """What is slower than in the baseline, and what could not be fitted."""
    unfitted = [_name(link) for link in result.links if link.fit is None]
    notes = []
    if unfitted:
        notes.append(
            f"no latency and bandwidth of {'; '.join(unfitted)}: too few sizes were measured"
            " undisturbed, or their times do not tell both"
        )
    for link in result.links:
        for part in link.slower:
            shift = getattr(link.shift, part)
            notes.append(
                f"SLOWER LINK: {_name(link)}: {part} costs {shift.ratio:.2f} × the time of the"
                f" baseline of {str(link.baseline_date)[:10]} (p = {shift.p_value:.2g}): what"
                " trains over it may be slower for that alone"
            )
    return notes


def _name(link: LinkFinding) -> str:
    settings = "".join(f" {name}={value}" for name, value in link.env.items())
    return f"{link.kind}, {link.ranks} ranks{settings}"


def _fit_cells(fit: LinkFit) -> list[str]:
    (quick, slow), (narrow, wide) = fit.latency_s, fit.bytes_per_s
    return [
        f"{fit.link.latency_s * 1e6:,.1f}",
        f"{quick * 1e6:,.1f}–{slow * 1e6:,.1f}",
        f"{fit.link.bytes_per_s / 1e9:.2f}",
        f"{narrow / 1e9:.2f}–{wide / 1e9:.2f}",
        f"{fit.misfit:.0%}",
    ]


def _shift_cells(link: LinkFinding) -> list[str]:
    if link.shift is None:
        return ["–", "–"]
    return [_ratio(link.shift.latency), _ratio(link.shift.bandwidth)]


def _ratio(shift: Shift) -> str:
    return f"{shift.ratio:.2f} ×"
