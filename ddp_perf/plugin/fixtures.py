"""Fixtures of the suite's tests: the measured case, and the assertion of its verdicts."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ddp_perf.core.case import Case
from ddp_perf.core.measurement import Finding, Measurement
from ddp_perf.core.metric import EFFICIENCY
from ddp_perf.core.verdict import Outcome
from ddp_perf.errors import DdpPerfError
from ddp_perf.plugin.clock import WorkerClock
from ddp_perf.plugin.session import SESSION, DdpSession
from ddp_perf.report.figures import CaseFigures, case_figures
from ddp_perf.report.text import (
    describe_finding,
    describe_launch_failure,
    placement_lines,
    summary_block,
)
from ddp_perf.session.result import SuiteResult
from ddp_perf.session.utilisation import utilisation_of
from ddp_perf.system.xid import find_xids

_FIRST_TIME = (Outcome.NO_BASELINE, Outcome.INCOMPARABLE, Outcome.BELOW_PUBLISHED)
_FAILING = (Outcome.REGRESSION, *_FIRST_TIME)
_SKIPPING = (Outcome.INCONCLUSIVE, Outcome.INVALID)
_UNDECIDED_ALLOWED = 0.2  # of a suite's cases, under --ddp-strict


class MeasuredCase:
    """A case that was measured whole: every launch finished."""

    def __init__(
        self, case: Case, result: SuiteResult, figures: CaseFigures, node: pytest.Item
    ) -> None:
        self.case = case
        self.result = result
        self.figures = figures
        self._node = node

    @property
    def measurement(self) -> Measurement:
        return self.result.measurements[self.case.id]

    def record(self, **properties: object) -> None:
        """Figures for JUnit, beside the verdict."""
        self._node.user_properties.extend(properties.items())


@pytest.fixture
def ddp_session(request: pytest.FixtureRequest) -> DdpSession:
    """The plan, the machine and the results of this pytest session."""
    return request.config.stash[SESSION]


@pytest.fixture
def ddp_measured(
    request: pytest.FixtureRequest, ddp_session: DdpSession, ddp_case: Case
) -> MeasuredCase:
    """The case of this item, measured with all others of its suite at the first request.

    Skips where the machine is too small, with the count. Fails when a rank failed, when
    devices are missing that ``--ddp-expect-devices`` promised, and under xdist.
    """
    _refuse_a_crowd(request.config)
    _check_machine(ddp_session, ddp_case)
    result, problem = None, ""
    try:
        result = ddp_session.result(ddp_case.suite)
    except DdpPerfError as error:
        problem = str(error)
    if result is None:  # outside the handler, which would print the traceback beside it
        pytest.fail(problem, pytrace=False)
    measurement = result.measurements[ddp_case.id]
    if result.injections:
        request.node.user_properties.append(("injected", ", ".join(result.injections)))
    if measurement.failures:
        failures = map(describe_launch_failure, measurement.failures)
        pytest.fail("\n".join(failures), pytrace=False)
    figures = case_figures(result, ddp_case.id)
    assert figures is not None  # no failure: every launch delivered
    placements = placement_lines([rank.placement for rank in measurement.launches[0].ranks])
    utilisation = utilisation_of(measurement, result.environment.accelerator_key)
    if utilisation is not None and utilisation.mfu is not None:
        request.node.user_properties.append(("mfu", utilisation.mfu))
    block = summary_block(measurement, result.summaries[ddp_case.id], utilisation)
    request.node.add_report_section("setup", "ddp", "\n".join([*placements, "", block]))
    return MeasuredCase(ddp_case, result, figures, request.node)


@pytest.fixture
def assert_verdict(ddp_session: DdpSession, ddp_measured: MeasuredCase) -> Callable[[str], None]:
    """``assert_verdict(metric)``: fail, skip or pass as the finding of that metric says."""

    def check(metric: str) -> None:
        case, result = ddp_measured.case, ddp_measured.result
        if metric == EFFICIENCY.name and case.single is None:
            pytest.skip("no one-rank leg to compare with: add 1 to world_sizes")
        finding = result.finding(case.id, metric)
        if finding is None:
            pytest.fail(f"{case.id} has no finding for {metric}", pytrace=False)
        _record_finding(ddp_measured, finding)
        text = describe_finding(finding)
        outcome = finding.verdict.outcome
        if _is_settled_by_saving(ddp_session, result, finding):
            pytest.skip(f"{text}\n{result.saved[case.id]}")
        if outcome is Outcome.NO_BASELINE and result.is_refused(finding):
            text = f"{text}\n{result.not_saved[case.id]}"
            _fail_if_strict(ddp_session, result, text)
            pytest.skip(text)
        if outcome in _FAILING:
            pytest.fail(text, pytrace=False)
        if outcome in _SKIPPING:
            _fail_if_strict(ddp_session, result, text)
            pytest.skip(text)

    return check


@pytest.fixture
def worker_clock(request: pytest.FixtureRequest, ddp_measured: MeasuredCase) -> WorkerClock:
    """A clock that tells the step times measured inside the workers.

    Request it before ``benchmark``: it makes pytest-benchmark read this clock.
    """
    clock = WorkerClock(ddp_measured.measurement.launches)
    request.node.add_marker(pytest.mark.benchmark(timer=clock, group=ddp_measured.case.suite))
    return clock


def _refuse_a_crowd(config: pytest.Config) -> None:
    if hasattr(config, "workerinput"):
        pytest.fail(
            "timed tests cannot be measured beside others: run them without -n (pytest-xdist)",
            pytrace=False,
        )


def _check_machine(ddp: DdpSession, case: Case) -> None:
    expected, found = ddp.options.expect_devices, len(ddp.capacity.machine.gpus)
    if case.tier == "gpu" and expected is not None and found != expected:
        causes = [ddp.capacity.machine.problem, *find_xids()]
        why = f" ({'; '.join(filter(None, causes))})" if any(causes) else ""
        pytest.fail(
            f"--ddp-expect-devices {expected}: found {found}{why}; see nvidia-smi and"
            " CUDA_VISIBLE_DEVICES",
            pytrace=False,
        )
    obstacle = ddp.capacity.obstacle(case)
    if obstacle is None:
        return
    if ddp.options.strict and not ddp.can_measure(case.suite):
        pytest.fail(f"--ddp-strict: {obstacle}, so nothing was measured", pytrace=False)
    pytest.skip(obstacle)


def _record_finding(measured: MeasuredCase, finding: Finding) -> None:
    verdict = finding.verdict
    figures = {
        "metric": finding.metric,
        "verdict": verdict.outcome.value,
        "value": finding.value,
        "baseline": finding.baseline,
        "baseline_date": finding.baseline_date,
        "changed": ", ".join(finding.changed) or None,
        "ratio": verdict.ratio,
        "interval": verdict.interval,
        "minimum_detectable": verdict.minimum_detectable,
    }
    measured.record(**{name: value for name, value in figures.items() if value is not None})


def _is_settled_by_saving(ddp: DdpSession, result: SuiteResult, finding: Finding) -> bool:
    """Whether --save-baseline answered what would fail: recorded, or knowingly replaced."""
    outcome, stored = finding.verdict.outcome, finding.case_id in result.saved
    accepted = ddp.options.save_mode == "accept" and outcome in _FAILING
    return stored and (accepted or outcome in _FIRST_TIME)


def _fail_if_strict(ddp: DdpSession, result: SuiteResult, text: str) -> None:
    undecided, cases = result.undecided(), len(result.measurements)
    if ddp.options.strict and len(undecided) > _UNDECIDED_ALLOWED * cases:
        pytest.fail(
            f"--ddp-strict: {len(undecided)} of {cases} cases undecided:"
            f" this machine cannot gate\n{text}",
            pytrace=False,
        )
