"""A session with every kind of verdict, for tests of reports."""

from __future__ import annotations

import msgspec

from ddp_perf.core.verdict import Cause, Explanation, Outcome
from ddp_perf.report.source import ReportSource
from ddp_perf.session.result import SuiteResult
from tests.builders import (
    make_cases,
    make_failure,
    make_finding,
    make_measurement,
    make_probe,
    make_result,
)

# One rank, then two, at batch 64 and 128.
ONE, TWO, ONE_LARGE, TWO_LARGE = make_cases(batch_sizes=[64, 128])
REGRESSED = {"ratio": 1.2, "interval": (1.15, 1.25), "minimum_detectable": 0.04, "baseline": 0.0125}


def make_suite_result(**changes: object) -> SuiteResult:
    """Return a suite: TWO is slower with a cause, a launch of TWO_LARGE failed, and ONE_LARGE is
    undecided.
    """
    measurements = [
        make_measurement(ONE, [0.0100, 0.0101, 0.0099], probe=make_probe(exposed=0.0)),
        make_measurement(TWO, [0.0150, 0.0151, 0.0149], probe=make_probe()),
        make_measurement(ONE_LARGE, [0.02] * 3),
        msgspec.structs.replace(
            make_measurement(TWO_LARGE, [0.03]), failures=(make_failure(TWO_LARGE),)
        ),
    ]
    cause = Cause(kind="communication", change_s=0.0025, share=1.0, evidence=("exposed",))
    fields: dict[str, object] = {
        "findings": (
            make_finding(
                ONE, Outcome.PASS, ratio=1.0, interval=(0.99, 1.01), upper=1.01, baseline=0.01
            ),
            make_finding(TWO, Outcome.REGRESSION, changed=("torch 2.12 → 2.13",), **REGRESSED),
            make_finding(TWO, Outcome.PASS, metric="tail"),
            make_finding(ONE_LARGE, Outcome.UNDECIDED, reason="too few sessions"),
        ),
        "explanations": {
            TWO.id: Explanation(
                case_id=TWO.id, step_change_s=0.0025, causes=(cause,), terms=(), launches=6
            )
        },
        "commands": {TWO.id: "pytest -m perf 'tests/perf/test_perf.py::test_step_time[x]'"},
    }
    return make_result(measurements, **{**fields, **changes})


def make_source(*suites: SuiteResult, complete: bool = True) -> ReportSource:
    return ReportSource(suites=suites or (make_suite_result(),), complete=complete)
