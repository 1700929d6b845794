"""The terminal's table of counted cases: a row for each case, suite by suite."""

from __future__ import annotations

import collections
from collections.abc import Iterable, Iterator, Sequence

from ddp_perf.core.verdict import Outcome
from ddp_perf.core.work import StepWork
from ddp_perf.render.tables import NARROWEST, plain_table, rendered, short_names, wrapped
from ddp_perf.render.units import ABSENT, counted, prefixed_number
from ddp_perf.report.work_rows import step_figures, verdict_word
from ddp_perf.work.values import CountedCase

_HEADINGS = ("operations", "FLOPs", "bytes\nmoved", "host\nreads", "collec-\ntives", "peak\nmemory")


def by_suite(cases: Iterable[CountedCase]) -> dict[str, list[CountedCase]]:
    """Return the cases of each suite, in an order that does not depend on who counted first."""
    suites: dict[str, list[CountedCase]] = collections.defaultdict(list)
    for case in sorted(cases, key=lambda one: one.case.key):
        suites[case.case.suite].append(case)
    return dict(suites)


def suite_lines(cases: Sequence[CountedCase], width: int) -> list[str]:
    """Return the table of a suite, and a line for what was stored and what got less."""
    table = plain_table()
    table.add_column("case", overflow="fold")
    for heading in _HEADINGS:
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("verdict", max_width=len(Outcome.INCOMPARABLE.value))
    names = short_names(one.case.id for one in cases)
    for one in cases:
        table.add_row(names[one.case.id], *_cells(one.work), verdict_word(one))
    width = max(width, NARROWEST)
    return [*rendered(table, width), *wrapped([*_notes(cases)], width)]


def _cells(work: StepWork | None) -> list[str]:
    if work is None:
        return [ABSENT] * len(_HEADINGS)
    total = step_figures(work)
    return [
        f"{total.operations:,}",
        prefixed_number(total.flops),
        f"{prefixed_number(total.bytes)}B",
        f"{total.host_reads:,}",
        f"{total.collectives:,}",
        f"{prefixed_number(total.peak)}B",
    ]


def _notes(cases: Sequence[CountedCase]) -> Iterator[str]:
    stored = collections.Counter(one.saved for one in cases if one.saved is not None)
    for file, number in sorted(stored.items()):
        yield f"stored in {file}: {counted(number, 'case')}"
    less = [one for one in cases if _outcome(one) is Outcome.IMPROVEMENT and one.saved is None]
    if less:
        yield (
            f"{counted(len(less), 'case')} of less work: more work than now is red only from"
            " --save-baseline=accept on"
        )
    workloads = [one for one in cases if one.case.script is None]  # a script always computes
    computed = [one.case.id for one in workloads if one.work is not None and one.work.computed]
    if computed:
        yield f"counted with values computed, which the step depends on: {', '.join(computed)}"


def _outcome(one: CountedCase) -> Outcome | None:
    return None if one.verdict is None else one.verdict.outcome
