"""The line on the targets of a suite."""

from __future__ import annotations

from ddp_perf.core.target import Target
from ddp_perf.core.verdict import Outcome
from ddp_perf.report.terminal.table import target_lines
from tests.builders import make_cases, make_finding, make_measurement, make_result

ONE, TWO = make_cases()


def finding(case, figure, outcome):
    target = Target(figure=figure, bound=1.0, unit="", file="x.yaml")
    return make_finding(case, outcome, metric=target.metric, target=target)


def lines(*findings, **changes):
    measured = [make_measurement(case, [0.01]) for case in (ONE, TWO)]
    return target_lines(make_result(measured, findings=findings, **changes))


def test_it_counts_the_targets_by_outcome():
    findings = (
        finding(ONE, "throughput", Outcome.MEETS_TARGET),
        finding(TWO, "throughput", Outcome.MISSES_TARGET),
        finding(TWO, "efficiency", Outcome.UNDECIDED),
        finding(TWO, "mfu", Outcome.INVALID),
        make_finding(TWO, Outcome.PASS),
    )

    assert lines(*findings) == [
        "4 targets: 1 met, 1 missed, 1 undecided, 1 invalid (throughput target, efficiency target,"
        " MFU target)"
    ]


def test_there_is_none_without_a_target_that_a_test_asserts():
    met = finding(ONE, "throughput", Outcome.MEETS_TARGET)

    assert lines(make_finding(TWO, Outcome.PASS)) == []
    assert lines(met, asserted={ONE.id: ("step_time",)}) == []
    assert lines(met, asserted={ONE.id: ("target:throughput",)}) != []
