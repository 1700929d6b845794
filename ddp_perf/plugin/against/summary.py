"""The duel in the summary of a pytest session."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from ddp_perf.duel.touched import Touched
from ddp_perf.plugin.against.session import AgainstSession
from ddp_perf.render.tables import wrapped
from ddp_perf.render.units import counted
from ddp_perf.report.duel.text import duel_text


def show_duel(terminalreporter: pytest.TerminalReporter, against: AgainstSession) -> None:
    """Write the table of the duel, and why cases were left out of it."""
    width = terminalreporter._tw.fullwidth
    if against.duel is not None:
        terminalreporter.section("duel")
        for line in duel_text(against.duel, width).splitlines():
            terminalreporter.write_line(line)
    for line in wrapped(list(left_out_lines(against.touched)), width):
        terminalreporter.write_line(line)


def left_out_lines(touched: Touched) -> Iterator[str]:
    """Yield a line for each reason why cases were left out, with how many they are."""
    for reason, number in Counter(touched.left_out.values()).most_common():
        yield f"ddp: --ddp-touched leaves {counted(number, 'case')} out: {reason}"
