"""A case of a duel as a test uses it: the figures of side B, and the verdict on B against A."""

from __future__ import annotations

from typing import NoReturn

import pytest

from ddp_perf.core.case import Case
from ddp_perf.core.measurement import Finding, Measurement
from ddp_perf.core.metric import CPU_TIME, METRICS, STEP_TIME, STRUCTURE, metric_title
from ddp_perf.core.verdict import DuelOutcome
from ddp_perf.duel.values import CaseDuel, Duel, MetricDuel
from ddp_perf.errors import DdpPerfError
from ddp_perf.plugin.exit_code import fail_undecided
from ddp_perf.plugin.measured import UNDECIDED_ALLOWED, MeasuredCase, check_machine, refuse_xdist
from ddp_perf.plugin.session import DdpSession
from ddp_perf.report.case_text import describe_launch_failure
from ddp_perf.session.figures import case_figures, costs_of
from ddp_perf.session.result import SuiteResult

_JUDGED = {metric.name for metric in METRICS}
_MOST_CHANGES = 5  # of the work that a message shows; the report has all of them
_NO_FINDING = (
    "--ddp-against: there is no finding, since no baseline judges the case; assert_verdict(metric)"
    " asserts the verdict of the duel"
)


class DuelledCase(MeasuredCase):
    """A case that finished on both sides. Figures and measurement are those of side B."""

    def __init__(
        self, one: CaseDuel, duel: Duel, result: SuiteResult, *, ddp: DdpSession, node: pytest.Item
    ) -> None:
        figures = case_figures(result, one.id)
        assert figures is not None  # it has launches
        super().__init__(one.cases.b, result, figures, ddp=ddp, node=node)
        self._one = one
        self._duel = duel

    def finding(self, metric: str) -> Finding | None:
        """Skip the test: a duel has no findings, which are verdicts by baselines."""
        _skip(_NO_FINDING, strict=self._ddp.options.strict)

    def assert_verdict(self, metric: str) -> None:
        """Fail, skip or pass the test, by the verdict of the duel on that metric."""
        if metric == STRUCTURE:
            self._assert_structure()
            return
        if metric not in _JUDGED:
            pytest.skip(f"a duel does not judge {metric_title(metric)}")
        if metric == "efficiency" and self.case.single is None:
            pytest.skip("there is no one-rank case to compare with; add 1 to world_sizes")
        verdict = self._deciding(metric)
        if verdict is None:
            self._skip_undecided(f"the duel has no verdict on {metric_title(metric)}")
        self.record(**_properties(verdict))
        if not verdict.decides:
            pytest.skip(
                f"{metric_title(metric)} does not decide here: {verdict.why or 'see the table'}"
            )
        text = self._text(verdict, metric)
        if verdict.verdict.outcome is DuelOutcome.SLOWER:
            pytest.fail(text, pytrace=False)
        if verdict.verdict.outcome is DuelOutcome.UNDECIDED:
            self._skip_undecided(text)

    def _deciding(self, metric: str) -> MetricDuel | None:
        """Return the verdict on the metric. CPU time may decide in the place of the step time."""
        found = {one.metric: one for one in self._one.metrics}
        one, other = found.get(metric), found.get(CPU_TIME.name)
        if metric == STEP_TIME.name and one is not None and not one.decides:
            return other if other is not None and other.decides else one
        return one

    def _assert_structure(self) -> None:
        if self._one.structure is not None:
            pytest.skip(
                "the sides have other structures, which a duel shows and does not judge:"
                f" {self._one.structure}"
            )

    def _text(self, one: MetricDuel, asked: str) -> str:
        """Return the verdict with its interval and reason; of a slower case, also the cause.

        If another metric decides in the place of the ``asked`` one, that one's ratio is beside it.
        """
        verdict = one.verdict
        head = f"{verdict.outcome.value}: {metric_title(asked)} of {one.case_id}"
        if one.metric != asked:
            head += f", by {metric_title(one.metric)}"
        lines = [f"{head}{_ratio(one)}, after {verdict.pairs} pairs", verdict.reason]
        lines += [
            f"{metric_title(asked)}{_ratio(beside)}, {beside.verdict.outcome.value}"
            for beside in self._one.metrics
            if beside.metric == asked != one.metric
        ]
        if one.why:
            lines.append(one.why)
        if verdict.outcome is DuelOutcome.UNDECIDED:
            lines.append(_what_it_takes(one))
        slower = verdict.outcome is DuelOutcome.SLOWER
        if slower and self._ddp.requested.is_first(self.case, "cause"):
            # Imported here: what draws is slow to import, and collection does not need it.
            from ddp_perf.report.duel.report import cause_lines

            lines += cause_lines(self._duel, self._one.id, _MOST_CHANGES)
        return "\n".join(lines)

    def _skip_undecided(self, text: str) -> NoReturn:
        """Skip the test. A strict session fails it if too many cases are undecided."""
        cases = self._duel.cases
        undecided = [case for case in cases if case.outcome is DuelOutcome.UNDECIDED]
        if self._ddp.options.strict and len(undecided) > UNDECIDED_ALLOWED * len(cases):
            fail_undecided(
                f"--ddp-strict: {len(undecided)} of {len(cases)} cases undecided\n{text}"
            )
        pytest.skip(text)


def duelled_case(node: pytest.Item, ddp: DdpSession, case: Case) -> DuelledCase:
    """Return the case with the verdicts of the duel. The first request of a session runs it.

    Fails the test if side B fails. Skips it if there is nothing to compare, or fails it as
    undecided if the session is strict.
    """
    refuse_xdist(node.config)
    check_machine(ddp, case)
    assert ddp.against is not None
    one, problem = None, ""
    try:
        one = ddp.against.of(case)
    except DdpPerfError as error:
        problem = str(error)
    if problem:  # outside the handler, or the traceback would be printed as well
        fail_undecided(problem)
    duel = ddp.against.duel
    if one is None or duel is None:
        left_out = ddp.against.leaves_out(case)
        _skip(ddp.against.why_none(case), strict=ddp.options.strict and not left_out)
    _check_launches(one, ddp)
    return DuelledCase(one, duel, _side_b(duel, one.cases.b.suite), ddp=ddp, node=node)


def _check_launches(one: CaseDuel, ddp: DdpSession) -> None:
    """Fail the test if a launch of side B failed, and skip it if only side A cannot run."""
    for side in ("B", "A"):
        failures = [failed.failure for failed in one.failures if failed.side == side]
        if not failures:
            continue
        describe = (
            describe_launch_failure
            if ddp.requested.is_first(one.cases.b, "launch failure")
            else str
        )
        text = f"side {side} fails: " + "\n".join(map(describe, failures))
        if side == "B":
            pytest.fail(text, pytrace=False)
        _skip(text, strict=ddp.options.strict)
    if not one.pairs:
        _skip(f"the duel ended before a pair of {one.id}", strict=ddp.options.strict)


def _side_b(duel: Duel, suite: str) -> SuiteResult:
    """Return what side B measured of a suite, in the form of a session without verdicts."""
    from ddp_perf.stats.summary import summaries_of  # imports numpy, which collection does not need

    cases = [one for one in duel.cases if one.cases.b.suite == suite and one.pairs]
    measurements = {
        one.id: Measurement(
            case=one.cases.b, launches=tuple(pair.b for pair in one.pairs), failures=()
        )
        for one in cases
    }
    rows = {case_id: tuple(found) for case_id, found in summaries_of(measurements).items()}
    return SuiteResult(
        suite=suite,
        tier=cases[0].cases.b.tier,
        date=duel.began,
        environment=duel.conditions["B"].environment,
        baseline_path="",
        alpha=duel.alpha,
        measurements=measurements,
        summaries=rows,
        costs=costs_of(measurements, rows),
    )


def _ratio(one: MetricDuel) -> str:
    """Write the ratio and its interval, if there are any: ``: B ÷ A 1.100 (1.080 to 1.120)``."""
    verdict = one.verdict
    text = "" if verdict.ratio is None else f": B ÷ A {verdict.ratio:.3f}"
    return (
        text if verdict.interval is None else text + " ({:.3f} to {:.3f})".format(*verdict.interval)
    )


def _what_it_takes(one: MetricDuel) -> str:
    more = one.verdict.more_pairs
    if more is None:
        return "no number of pairs up to a thousand would decide it; see ddp-perf doctor"
    return f"about {more} more pairs would decide it; raise --ddp-budget"


def _properties(one: MetricDuel) -> dict[str, object]:
    verdict = one.verdict
    figures = {
        "metric": one.metric,
        "verdict": verdict.outcome.value,
        "value": one.b,
        "against": one.a,
        "ratio": verdict.ratio,
        "interval": verdict.interval,
        "minimum_detectable": verdict.minimum_detectable,
        "pairs": verdict.pairs,
    }
    return {name: value for name, value in figures.items() if value is not None}


def _skip(why: str, *, strict: bool) -> NoReturn:
    if strict:
        fail_undecided(why)
    pytest.skip(why)
