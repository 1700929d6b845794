"""A measured or counted case as a test uses it, with its figures and verdicts."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

import msgspec
import pytest

from ddp_perf.core.case import Case
from ddp_perf.core.launch import LaunchFailure
from ddp_perf.core.measurement import Finding, Measurement
from ddp_perf.core.metric import (
    EFFICIENCY,
    LOSS,
    NODES,
    STEP_TIME,
    STRUCTURE,
    TAIL,
    is_explained,
    needs_single_rank,
)
from ddp_perf.core.verdict import Outcome
from ddp_perf.core.work import StepWork
from ddp_perf.errors import DdpPerfError, did_you_mean
from ddp_perf.plugin.exit_code import COUNTED, fail_undecided
from ddp_perf.plugin.items import in_xdist_worker
from ddp_perf.plugin.session import DdpSession
from ddp_perf.report.case_text import (
    describe_finding,
    describe_launch_failure,
    reason_lines,
    why_slower,
)
from ddp_perf.report.rows import refused_text, resolved_text
from ddp_perf.report.work_rows import step_figures
from ddp_perf.session.figures import CaseFigures, case_figures, properties
from ddp_perf.session.gate.targets import utilisation_of
from ddp_perf.session.result import SuiteResult, is_never_measured
from ddp_perf.stats.summary import utilisation_figures
from ddp_perf.system.capacity import missing_package
from ddp_perf.system.gpu.gpus import find_xids
from ddp_perf.work.text import verdict_lines
from ddp_perf.work.values import CountedCase, WorkVerdict

# A measured case as a test uses it, with its figures and verdicts.


_OF_ONE_REASON = (Outcome.INVALID, Outcome.NO_BASELINE)  # often of many tests of a session
_AS_ABOVE = "for the reason of a test before, which the end of the session repeats by case"
UNDECIDED_ALLOWED = 0.2  # of a suite's cases, under --ddp-strict


class MeasuredCase:
    """A case of which every launch finished."""

    def __init__(
        self,
        case: Case,
        result: SuiteResult,
        figures: CaseFigures,
        *,
        ddp: DdpSession,
        node: pytest.Item,
    ) -> None:
        self.case = case
        self.result = result  # of the whole suite, with this case among others
        self.figures = figures
        self._ddp = ddp
        self._node = node

    @property
    def measurement(self) -> Measurement:
        return self.result.measurements[self.case.id]

    @property
    def properties(self) -> dict[str, float]:
        """Figures of a step, or of a call of a collective, by name with unit, for `record`."""
        return properties(self.figures, self.case)

    def record(self, **properties: object) -> None:
        """Add figures to the test's entry in the JUnit file."""
        self._node.user_properties.extend(properties.items())

    def figures_of(self, metric: str) -> dict[str, object]:
        """Return the figures that belong to a metric, by name with unit, for `record`."""
        launch = self.measurement.launches[0]
        if metric == STRUCTURE and (structure := launch.ranks[0].structure) is not None:
            return {
                "parameters": structure.parameters,
                "collectives_per_step": len(structure.collectives),
                "bytes_per_step": sum(one.bytes for one in structure.collectives),
            }
        if metric == LOSS:
            return {f"loss_step_{step}": loss for step, loss in launch.losses.items()}
        if metric == STEP_TIME.name:
            return {**self.properties}
        if metric == TAIL.name:
            return {"p95_step_ms": self.figures.p95_step_s * 1e3}
        if metric == EFFICIENCY.name and (scaling := self.figures.scaling) is not None:
            return {
                "speedup": scaling.speedup,
                "scaling_efficiency": scaling.efficiency,
                "scaling_overhead_ms": scaling.overhead_s * 1e3,
                "scaling_overhead_fraction": scaling.overhead_fraction,
            }
        if metric == NODES and (finding := self.finding(NODES)) is not None:
            return {f"node_{one.node}": one.ratio for one in finding.nodes if one.ratio}
        return {}

    def finding(self, metric: str) -> Finding | None:
        """Return the finding on a metric, or None if the metric is not gated."""
        return self.result.finding(self.case.id, metric)

    def assert_verdict(self, metric: str) -> None:
        """Fail, skip or pass the test, by the verdict on that metric."""
        if needs_single_rank(metric) and self.case.single is None:
            pytest.skip("there is no one-rank case to compare with; add 1 to world_sizes")
        self._ddp.requested.note(self.case, metric)
        finding = self.finding(metric)
        if finding is None:
            gated = [one.metric for one in self.result.findings if one.case_id == self.case.id]
            pytest.fail(
                f"{self.case.id} has no finding for {metric}{did_you_mean(metric, gated)};"
                f" its suite gates {', '.join(gated)}",
                pytrace=False,
            )
        self._record_finding(finding)
        outcome, text = finding.verdict.outcome, describe_finding(finding)
        reason = finding.excuse.facts[0] if finding.excuse else finding.reason
        is_shared = outcome in _OF_ONE_REASON and finding.published is None
        if is_shared and not self._ddp.requested.is_first_reason(reason):
            text = f"{text.splitlines()[0]}\n{_AS_ABOVE}"
        why = why_slower(self.result, self.case.id)
        if outcome is Outcome.REGRESSION and why and is_explained(metric):
            first = self._ddp.requested.is_first(self.case, "explanation")
            text = "\n".join([text, *(why if first else ())])
        if self.result.is_not_accepted(finding):
            refused = refused_text(self.result.not_saved[self.case.id])
            pytest.fail(f"{text}\n{refused}", pytrace=False)
        if self.result.is_resolved(finding):
            pytest.skip(f"{text}\n{resolved_text(self.result, finding)}")
        if finding.is_expected:
            pytest.xfail(text)
        if outcome.fails:
            is_open = self.result.is_open(finding)
            if is_open and not self._ddp.options.strict:
                pytest.skip(text)
            if is_open or (outcome is Outcome.NO_BASELINE and not self.result.is_refused(finding)):
                fail_undecided(text)
            pytest.fail(text, pytrace=False)
        if outcome.skips or self.result.needs_append(finding):
            self._fail_if_strict(finding, text)
            pytest.skip(text)

    def _record_finding(self, finding: Finding) -> None:
        verdict = finding.verdict
        figures = {
            "metric": finding.metric,
            "verdict": verdict.outcome.value,
            "reason": "; ".join(reason_lines(finding)),
            "value": finding.value,
            "baseline": finding.baseline,
            "baseline_date": finding.baseline_date,
            "changed": ", ".join(finding.changed) or None,
            "ratio": verdict.ratio,
            "interval": verdict.interval,
            "minimum_detectable": verdict.minimum_detectable,
            "value_interval": finding.value_interval,
            "target": finding.target and finding.target.bound,
        }
        self.record(**{name: value for name, value in figures.items() if value is not None})

    def _fail_if_strict(self, finding: Finding, text: str) -> None:
        if not self._ddp.options.strict:
            return
        if not self.result.gates(self.case.id):
            return
        if is_never_measured(finding):
            many = finding.unmeasured + 1
            fail_undecided(f"--ddp-strict: INVALID for {many} sessions in a row\n{text}")
        undecided = self.result.undecided()
        cases = sum(map(self.result.gates, self.result.measurements))
        if len(undecided) > UNDECIDED_ALLOWED * cases:
            fail_undecided(
                f"--ddp-strict: {len(undecided)} of {cases} cases undecided:"
                f" this machine cannot gate\n{text}"
            )


def measured_case(
    node: pytest.Item, ddp: DdpSession, case: Case, measure: Callable[[], SuiteResult]
) -> MeasuredCase:
    """Return the case out of the result of ``measure``.

    Skips the test if the machine is too small, with the missing number. Fails it if a rank
    failed, if the number of devices is not that of ``--ddp-expect-devices``, or under xdist.
    """
    refuse_xdist(node.config)
    check_machine(ddp, case)
    ddp.requested.note(case)
    result, problem = None, ""
    try:
        result = measure()
    except DdpPerfError as error:
        problem = str(error)
    if result is None:  # outside the handler, or the traceback would be printed as well
        fail_undecided(problem)
    measurement = result.measurements[case.id]
    if result.injections:
        node.user_properties.append(("injected", ", ".join(result.injections)))
    if measurement.failed:
        is_first = ddp.requested.is_first(case, "launch failure")
        describe = describe_launch_failure if is_first else str
        pytest.fail("\n".join(map(describe, measurement.failures)), pytrace=False)
    _fail_for_its_nodes(ddp, result, case)
    figures = case_figures(result, case.id)
    assert figures is not None  # no launch failed
    utilisation = utilisation_of(measurement, result.environment.accelerator_key)
    if utilisation is not None and utilisation.mfu is not None:
        node.user_properties.append(("mfu", utilisation.mfu))
    if figures.energy_j is not None:
        node.user_properties.append(("energy_j_per_sample", figures.energy_j))
    node.user_properties.extend(utilisation_figures(measurement.launches).known().items())
    return MeasuredCase(case, result, figures, ddp=ddp, node=node)


def _fail_for_its_nodes(ddp: DdpSession, result: SuiteResult, case: Case) -> None:
    """Fail the case's first test of a strict session for a node that is bad, if no test asserts it.

    The others give the case its verdicts, so it would be green, whatever became of that node.
    """
    finding = result.finding(case.id, NODES)
    if finding is None or finding.verdict.outcome is not Outcome.BAD_NODE:
        return
    unasserted = ddp.options.strict and not ddp.requested.asserts(case, NODES)
    if unasserted and ddp.requested.is_first(case, "bad node"):
        pytest.fail(f"--ddp-strict: {describe_finding(finding)}", pytrace=False)


def refuse_xdist(config: pytest.Config) -> None:
    """Fail the test in a process that pytest-xdist runs beside others."""
    if in_xdist_worker(config):
        pytest.fail(
            "timed tests cannot run beside other tests; run them without -n (pytest-xdist)",
            pytrace=False,
        )


def check_machine(ddp: DdpSession, case: Case) -> None:
    """Skip the test if the machine is too small for the case, or fail it if it must not be."""
    expected, found = ddp.options.expect_devices, len(ddp.capacity.machine.gpus)
    if case.tier == "gpu" and expected is not None and found != expected:
        causes = [ddp.capacity.machine.problem, *find_xids()]
        why = f" ({'; '.join(filter(None, causes))})" if any(causes) else ""
        fail_undecided(
            f"--ddp-expect-devices {expected}: found {found}{why}; see nvidia-smi and"
            " CUDA_VISIBLE_DEVICES"
        )
    obstacle = ddp.capacity.obstacle(case)
    if obstacle is None:
        return
    if ddp.options.strict and ddp.owes(case):
        known = "" if case.tier == "cpu" else ", or state the GPUs: --ddp-expect-devices N"
        fail_undecided(
            f"--ddp-strict: {obstacle}, so it was not measured; leave out what this machine is not"
            f" to run (-k, --ddp-world-sizes){known}"
        )
    pytest.skip(obstacle)


# A counted case as a test uses it: its counts, and the assertion of the verdict on them.


_MOST_CHANGES = 12  # that a message shows; the report has all of them
_FRAMES = "(These are the frames of your code.)"


class CountedStep:
    """The step of a case, which is counted when a test first asks for its counts."""

    def __init__(self, case: Case, *, ddp: DdpSession, node: pytest.Item) -> None:
        self.case = case
        self._ddp = ddp
        self._node = node

    @property
    def work(self) -> StepWork:
        """The counts of rank 0. The test fails if the step cannot be counted."""
        work = self._counted().work
        assert work is not None  # `_counted` has failed the test otherwise
        return work

    @property
    def verdict(self) -> WorkVerdict:
        """The verdict on the counts, by those that are stored for this version of torch."""
        verdict = self._counted().verdict
        assert verdict is not None
        return verdict

    def assert_verdict(self) -> None:
        """Fail, skip or pass the test, by the verdict on the counts."""
        counted = self._counted()
        outcome = self.verdict.outcome
        if outcome.is_good:
            return
        first, *others = verdict_lines(self.verdict, _MOST_CHANGES)
        lines = [f"{self.case.id}: {first}", *others]
        if counted.saved is not None:
            pytest.skip("\n".join([*lines, f"stored in {counted.saved}"]))
        text = "\n".join(lines)
        if outcome is Outcome.REGRESSION:
            pytest.fail(text, pytrace=False)
        self._skip(text)

    def _counted(self) -> CountedCase:
        """Return the counted case, and note it in the test's report.

        The test fails without a traceback if the step cannot be counted.
        """
        missing = missing_package(self.case)
        if missing is not None:
            self._skip(missing)
        found, problem = None, ""
        try:
            found = self._ddp.work.count(self.case)
        except DdpPerfError as error:
            problem = str(error)
        if found is None:  # outside the handler, or the traceback would be printed as well
            fail_undecided(problem)
        if isinstance(found, LaunchFailure) and found.kind == "needs_gpu":
            self._skip(found.detail)
        if isinstance(found, LaunchFailure):
            counted = CountedCase(
                case=self.case, failure=describe_launch_failure(found, remark=_FRAMES)
            )
        else:
            counted = found
        if COUNTED not in self._node.stash and counted.work is not None:
            figures = msgspec.structs.asdict(step_figures(counted.work))
            self._node.user_properties.extend(figures.items())
        self._node.stash[COUNTED] = counted
        if counted.failure is not None:
            pytest.fail(counted.failure, pytrace=False)
        return counted

    def _skip(self, why: str) -> NoReturn:
        """Skip the test: nothing is compared. A strict session leaves it undecided."""
        if self._ddp.options.strict:
            fail_undecided(why)
        pytest.skip(why)
