"""The link under a suite of collectives: latency, bandwidth, and what got slower of the two."""

from __future__ import annotations

from ddp_perf.render.tables import plain_table, rendered
from ddp_perf.session.result import LinkFinding, SuiteResult
from ddp_perf.stats.link.values import LinkFit


def link_lines(result: SuiteResult, width: int) -> list[str]:
    """A table of what was fitted; empty where nothing could be."""
    fitted = [(link, link.fit) for link in result.links if link.fit is not None]
    if not fitted:
        return []
    table = plain_table()
    table.add_column("ring model\n(fitted)", overflow="fold")
    for heading in (
        *("ranks\n", "latency\nµs", "95 %\ninterval", "GB/s\n", "95 %\ninterval"),
        *("mis-\nfit", "lat.\n×", "byte\n×"),  # × the baseline's time
    ):
        table.add_column(heading, justify="right", no_wrap=True)
    for link, fit in fitted:
        name, ranks = f"{link.kind}{_settings(link)}", str(link.ranks)
        table.add_row(name, ranks, *_fit_cells(fit), *_shift_cells(link))
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
    return f"{link.kind}, {link.ranks} ranks{_settings(link)}"


def _settings(link: LinkFinding) -> str:
    return "".join(f" {name}={value}" for name, value in link.env.items())


def _fit_cells(fit: LinkFit) -> list[str]:
    (quick, slow), (narrow, wide) = fit.latency_s, fit.bytes_per_s
    return [
        _short(fit.link.latency_s * 1e6),
        f"{_short(quick * 1e6)}–{_short(slow * 1e6)}",
        _short(fit.link.bytes_per_s / 1e9),
        f"{_short(narrow / 1e9)}–{_short(wide / 1e9)}",
        f"{fit.misfit:.0%}",
    ]


def _shift_cells(link: LinkFinding) -> list[str]:
    if link.shift is None:
        return ["–"] * 2
    return [f"{shift.ratio:.2f}" for shift in (link.shift.latency, link.shift.bandwidth)]


def _short(number: float) -> str:
    """Three digits, and never an exponent for a large number."""
    return f"{number:.0f}" if number >= 100 else f"{number:.3g}"
