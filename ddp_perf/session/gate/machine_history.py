"""The stored sessions of a machine as the rule takes them: histories, priors and controls."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from ddp_perf.core.baseline import Baseline
from ddp_perf.core.case import Case
from ddp_perf.core.environment import Environment
from ddp_perf.core.measurement import Finding
from ddp_perf.core.metric import is_controlled, metric_spec
from ddp_perf.core.metric_history import LEAST_SESSIONS, MetricHistory, both_sides
from ddp_perf.core.session import CONTROL, Session
from ddp_perf.core.verdict import SessionPrior
from ddp_perf.session.gate.comparability import same_software, software
from ddp_perf.stats.rule.machine_prior import CaseSessions, MachineSpread
from ddp_perf.stats.rule.session_variance import WIDE_DEFAULT

# Hosts of a pool are assumed to differ by so many times as much as sessions of one machine
# (benchmarks/pool.py).
_HOSTS_DIFFER = 2.0
# Launches or sessions of another case that differ by more are a slow mode, or a move of its level,
# and no spread. The cases' own tolerances are not stored, and may differ.
_SMALLEST_STEP = 0.05


class MachineHistory:
    """The stored sessions of every metric of a machine, and the priors that they give.

    With ``compared``, the judged sessions of a comparison by case id, each session counts, and
    those of both sides inform the spread, each around the level of its side.
    """

    def __init__(
        self,
        baseline: Baseline,
        environment: Environment,
        compared: Mapping[str, Sequence[Session]] | None = None,
    ) -> None:
        self._baseline = baseline
        self._environment = environment
        self._compared = compared
        self._histories: dict[tuple[str, str], MetricHistory] = {}
        self._spreads: dict[tuple[str, bool, bool], tuple[dict[str, int], MachineSpread]] = {}

    def of(self, case_id: str, metric: str) -> MetricHistory:
        """Return the stored sessions of a case's metric, in a pool as seen from this host."""
        host, stored = self._environment.pooled_host, self._stored(case_id, metric)
        return stored if host is None else stored.seen_from(host)

    def compares_hosts(self, finding: Finding) -> bool:
        """Return whether a finding compares this host with the other hosts of its pool."""
        return finding.baseline is not None and self.of(finding.case_id, finding.metric).of_hosts

    def prior(self, case: Case, metric: str) -> SessionPrior:
        """Return the spread of the other cases of the same kind.

        Training steps and single collectives vary differently, so neither informs the other. While
        the case has one or two sessions, and the others are no better known, it is an assumed one.
        """
        history = self.of(case.id, metric)
        key = (metric, case.trains, history.of_hosts)
        if key not in self._spreads:
            self._spreads[key] = self._spread(metric, trains=case.trains, of_hosts=history.of_hosts)
        places, spread = self._spreads[key]
        prior = spread.prior(places.get(case.id))
        freedom = WIDE_DEFAULT.degrees_of_freedom
        few = len(history.informing) < LEAST_SESSIONS
        if self._compared is not None:
            few = history.degrees_of_freedom < freedom
        if prior is None or (few and prior.degrees_of_freedom < freedom):
            sd = metric_spec(metric).assumed_sd_of(case.tier) * (
                _HOSTS_DIFFER if history.of_hosts else 1.0
            )
            return SessionPrior(sd=sd, degrees_of_freedom=freedom, assumed=True)
        return prior

    def _spread(
        self, metric: str, *, trains: bool, of_hosts: bool
    ) -> tuple[dict[str, int], MachineSpread]:
        cases: list[CaseSessions] = []
        places: dict[str, int] = {}
        for case_id, stored in self._baseline.cases.items():
            if stored.source != "measured" or ("workload" in stored.work) is not trains:
                continue
            history = self._in_units(self._stored(case_id, metric), of_hosts=of_hosts)
            places[case_id] = len(cases)
            cases.append(
                CaseSessions(
                    sessions=[session.values(metric) for session in history.informing],
                    days=self._days(history),
                    control=self._controls(history),
                    session_levels=history.levels,
                    tolerance=_SMALLEST_STEP,
                )
            )
        return places, MachineSpread(cases)

    def _stored(self, case_id: str, metric: str) -> MetricHistory:
        key = (case_id, metric)
        if key not in self._histories:
            stored = self._baseline.cases[case_id]
            self._histories[key] = (
                stored.history(metric)
                if self._compared is None
                else both_sides(metric, stored.sessions, self._compared.get(case_id, ()))
            )
        return self._histories[key]

    def _controls(self, history: MetricHistory) -> list[list[float]] | None:
        """Return the control of each session; none in a comparison, which uses no control."""
        if self._compared is not None:
            return None
        return controls(history.informing, history.metric, self._environment)

    def _days(self, history: MetricHistory) -> list[str]:
        """Return names that cases share which were measured in one session."""
        if self._compared is None:
            return [_half_day(session) for session in history.informing]
        return [str(place) for place in range(len(history.informing))]

    def _in_units(self, stored: MetricHistory, *, of_hosts: bool) -> MetricHistory:
        """Return another case's sessions in the units of the judged one: of hosts, or of one."""
        host = self._environment.pooled_host
        if host is None:
            return stored
        return stored.across_hosts() if of_hosts else stored.on_host(host)


def _half_day(session: Session) -> str:
    """Return a name that sessions of one host and half of a day share, in UTC."""
    half = "am" if session.date[11:13] < "12" else "pm"
    return f"{session.date[:10]} {half} {session.environment.pooled_host or ''}"


def controls(
    sessions: Sequence[Session], metric: str, now: Environment
) -> list[list[float]] | None:
    """Return the control of each session, or None if the control does not apply to the metric.

    It does not apply before there are enough sessions to show whether the case follows it: until
    then it would only add noise. Software moves the control as well as the machine does. So the
    control of other software is scaled to the level of the present one, which needs enough sessions
    of its own.
    """
    if not is_controlled(metric):
        return None
    same = [session for session in sessions if same_software(session.environment, now)]
    if len(same) < LEAST_SESSIONS or not all(session.values(CONTROL) for session in sessions):
        return None
    level = _level(same)
    scales = {
        version: level / _level([s for s in sessions if software(s.environment) == version])
        for version in {software(session.environment) for session in sessions}
    }
    return [
        [scales[software(session.environment)] * value for value in session.values(CONTROL)]
        for session in sessions
    ]


def _level(sessions: Sequence[Session]) -> float:
    return statistics.median(value for session in sessions for value in session.values(CONTROL))
