"""The hosts of a pool: how a verdict compares them, and a host that does not fit the others.

A host does not fit if its control is unlike that of the others. The control is a frozen matrix
product that is timed in every launch. The code cannot slow it down, so a slow control shows the
host, and a slow-down of the code cannot pass for it.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence

import msgspec

from ddp_perf.core.baseline import Baseline
from ddp_perf.core.environment import Environment
from ddp_perf.core.measurement import Finding, LaunchSummary, Measurement
from ddp_perf.core.metric import metric_spec
from ddp_perf.core.metric_history import LEAST_SESSIONS
from ddp_perf.core.outlier_host import OutlierHost
from ddp_perf.core.session import CONTROL
from ddp_perf.core.verdict import Outcome
from ddp_perf.render.units import counted
from ddp_perf.session.gate.comparability import same_software
from ddp_perf.stats.rule.comparison import upper_t

_LEVEL = 0.01  # share of the sessions on hosts that fit which would be reported, slow or fast ones

_Controls = dict[str, float]  # by case id: the log of the control


def find_outlier_host(
    measurements: Mapping[str, Measurement],
    summaries: Mapping[str, Sequence[LaunchSummary]],
    baseline: Baseline,
    environment: Environment,
) -> OutlierHost | None:
    """Return how the host differs from its pool, or None if it fits or is of no pool.

    One session of each host is compared, over all cases that both have, by a prediction interval:
    Student's t on the degrees of freedom of the hosts. A difference below the tolerance does not
    count. Two other hosts are too few to show how hosts differ.
    """
    host, pool = environment.pooled_host, environment.pool
    if host is None or pool is None:
        return None
    now = {
        case_id: _log_control([row.control_s for row in rows])
        for case_id, rows in summaries.items()
        if rows
    }
    others = _first_controls(baseline, environment)
    others.pop(host, None)
    centres = _centres(others)
    deviations = [_deviation(one, centres) for one in others.values()]
    if len(others) < LEAST_SESSIONS or not now.keys() & centres.keys():
        return None
    variance = sum(one**2 for one in deviations) / (len(others) - 1)
    error = math.sqrt(variance * (1 + 1 / len(others)))
    tolerance = min(measurements[case_id].case.tolerances.step_time for case_id in now)
    limit = max(upper_t(len(others) - 1, _LEVEL / 2) * error, math.log1p(tolerance))
    shift = _deviation(now, centres)
    if abs(shift) < limit:
        return None
    return OutlierHost(
        host=host, pool=pool, ratio=math.exp(shift), hosts=len(others), limit=math.exp(limit)
    )


def compared_with_hosts(finding: Finding, outlier_host: OutlierHost | None) -> Finding:
    """Return a finding that compares this host with the others of its pool, with its reason.

    It is INVALID if the host does not fit, and its times with it.
    """
    verdict = finding.verdict
    hosts = counted(finding.sessions, "host")
    reason = f"{verdict.reason}. It is compared with the first session of {hosts} of the pool"
    verdict = msgspec.structs.replace(verdict, reason=reason)
    if outlier_host is not None and metric_spec(finding.metric).disturbed_by is not None:
        verdict = msgspec.structs.replace(
            verdict,
            outcome=Outcome.INVALID,
            reason=f"{outlier_host}; by the figures alone: {verdict.outcome.value}: {reason}",
            more_launches=None,
            likely_launches=None,
            chance=None,
        )
        what = "the host does not fit its pool"
        return msgspec.structs.replace(finding, verdict=verdict, disturbance=what)
    return msgspec.structs.replace(finding, verdict=verdict)


def _first_controls(baseline: Baseline, environment: Environment) -> dict[str, _Controls]:
    """Return the controls of each host's first session with the software of the environment."""
    first: dict[str, tuple[str, _Controls]] = {}
    stored = [(one, case_id) for case_id, case in baseline.cases.items() for one in case.sessions]
    for session, case_id in sorted(stored, key=lambda entry: entry[0].date):
        host, values = session.environment.pooled_host, session.values(CONTROL)
        if host is None or not values or not same_software(session.environment, environment):
            continue
        date, controls = first.setdefault(host, (session.date, {}))
        if session.date == date:
            controls[case_id] = _log_control(values)
    return {host: controls for host, (_, controls) in first.items()}


def _log_control(values: Sequence[float]) -> float:
    return math.log(statistics.median(values))


def _centres(hosts: Mapping[str, _Controls]) -> _Controls:
    """Return the mean over the hosts of each case's control."""
    by_case: dict[str, list[float]] = {}
    for controls in hosts.values():
        for case_id, control in controls.items():
            by_case.setdefault(case_id, []).append(control)
    return {case_id: statistics.fmean(found) for case_id, found in by_case.items()}


def _deviation(controls: _Controls, centres: _Controls) -> float:
    """Return how far a session's control is from the centres, over the cases that have one."""
    return statistics.fmean(
        control - centres[case_id] for case_id, control in controls.items() if case_id in centres
    )
