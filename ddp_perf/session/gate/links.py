"""The link of a suite of collectives: the fit of this session compared with the baseline's.

If a training case regresses while the link got slower, the case may not have changed itself.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from ddp_perf.baselines.save import is_comparable
from ddp_perf.core.baseline import Baseline
from ddp_perf.core.case import Case
from ddp_perf.core.collective import CollectiveKind
from ddp_perf.core.environment import Environment
from ddp_perf.core.measurement import LaunchSummary, Measurement
from ddp_perf.core.metric import STEP_TIME
from ddp_perf.session.gate.comparability import other_machine
from ddp_perf.session.gate.disturbance import prevailing_disturbance
from ddp_perf.session.result import LinkFinding
from ddp_perf.stats.alpha_beta import compare_links, fit_link
from ddp_perf.stats.link.values import LinkFit, LinkPoint


def find_links(
    measurements: Mapping[str, Measurement],
    summaries: Mapping[str, Sequence[LaunchSummary]],
    baseline: Baseline,
    environment: Environment,
) -> tuple[LinkFinding, ...]:
    """Fit one link for each collective, layout and environment of the ranks.

    On one node it is the link within a node. Over several nodes a ring has the pace of its slowest
    link, so it is the link between nodes.
    """
    groups: dict[tuple[CollectiveKind, int, int, tuple[tuple[str, str], ...]], list[Case]] = {}
    for measurement in measurements.values():
        case = measurement.case
        if case.collective is not None:
            env = tuple(sorted(case.working_env.items()))
            key = case.collective.kind, case.world_size, case.nodes, env
            groups.setdefault(key, []).append(case)
    findings = []
    for (kind, ranks, nodes, env), cases in groups.items():
        now = fit_link(_measured(cases, measurements, summaries), kind=kind, ranks=ranks)
        finding = LinkFinding(kind=kind, ranks=ranks, nodes=nodes, env=dict(env), fit=now)
        stored = _stored(cases, baseline, environment)
        findings.append(_compared(finding, stored, cases[0].tolerances.step_time))
    return tuple(findings)


def _compared(
    finding: LinkFinding, stored: Mapping[str, Sequence[LinkPoint]], tolerance: float
) -> LinkFinding:
    """Compare the link with that of all stored sessions together, whose points are by date."""

    def fitted(points: Iterable[LinkPoint]) -> LinkFit | None:
        return fit_link(list(points), kind=finding.kind, ranks=finding.ranks)

    before = fitted(itertools.chain.from_iterable(stored.values()))
    if finding.fit is None or before is None:
        return finding
    sessions = [fit for points in stored.values() if (fit := fitted(points)) is not None]
    shift = compare_links(finding.fit, before, sessions)
    if shift is None:
        return finding
    return msgspec.structs.replace(
        finding,
        baseline_date=min(stored),
        before=before.link,
        shift=shift,
        tolerance=tolerance,
        slower=tuple(shift.slower(tolerance)),
    )


def _measured(
    cases: Sequence[Case],
    measurements: Mapping[str, Measurement],
    summaries: Mapping[str, Sequence[LaunchSummary]],
) -> list[LinkPoint]:
    """Return one point for each launch of the cases that were not disturbed."""
    points: list[LinkPoint] = []
    for case in cases:
        if prevailing_disturbance(case.id, measurements) is None:
            points += _points(case, [row.values[STEP_TIME.name] for row in summaries[case.id]])
    return points


def _stored(
    cases: Sequence[Case], baseline: Baseline, environment: Environment
) -> dict[str, list[LinkPoint]]:
    """Return the points of the comparable reference sessions, by the date of the session."""
    points: dict[str, list[LinkPoint]] = {}
    for case in cases:
        stored = baseline.cases.get(case.id)
        if stored is None or not is_comparable(stored, case):
            continue
        if other_machine(stored, environment, world_size=case.world_size, nodes=case.nodes):
            continue
        for session in stored.reference(STEP_TIME.name):
            of_session = _points(case, session.values(STEP_TIME.name))
            points.setdefault(session.date, []).extend(of_session)
    return points


def _points(case: Case, step_s: Sequence[float]) -> Iterator[LinkPoint]:
    assert case.collective is not None  # the cases were grouped by it
    for seconds in step_s:
        yield LinkPoint(payload=case.collective.payload, seconds=seconds / case.collective.calls)
