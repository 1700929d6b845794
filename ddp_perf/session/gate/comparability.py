"""The rules of comparison: environments, hosts of a pool, clocks of GPUs, a machine's sessions."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from ddp_perf.core.baseline import (
    CONTROL,
    LEAST_SESSIONS,
    Baseline,
    CaseBaseline,
    MetricHistory,
    Session,
    both_sides,
)
from ddp_perf.core.case import Case
from ddp_perf.core.environment import Environment, OutlierHost
from ddp_perf.core.gpu import CLOCKS, HEAT, POWER_CAP, ClockName, Throttle
from ddp_perf.core.launch import LaunchResult
from ddp_perf.core.measurement import Finding, LaunchSummary, Measurement
from ddp_perf.core.metric import STEP_TIME, is_controlled, metric_spec
from ddp_perf.core.note import NoteKind
from ddp_perf.core.verdict import Outcome, SessionPrior
from ddp_perf.render.units import change_text, counted, field_changes
from ddp_perf.stats.interval import upper_t
from ddp_perf.stats.rule.judge import CaseSessions, MachineSpread
from ddp_perf.stats.rule.levels import WIDE_DEFAULT

# The rules by which figures of two environments may be compared, and their differences.


_SAME = 0.05  # memory and power limits that differ by less belong to one class
_SOFTWARE = ("torch", "cuda", "cudnn", "nccl", "driver", "blas")
# A change of these is shown beside a verdict and allowed: it is often the tested change.
_INFORMATIVE = (
    "driver",
    "cuda",
    "nccl",
    "torch",
    "cudnn",
    "blas",
    "python",
    "os",
    "host",
    "hosts",
    "alike_nodes",
    "sm_clock_mhz",
    "ecc",
    "persistence",
    "networks",
)


def cases_elsewhere(relatives: Sequence[Baseline]) -> dict[str, str]:
    """Return, by case id, the nearest relative that has sessions of it; they come nearest first."""
    return {
        case_id: other.accelerator
        for other in reversed(relatives)  # the nearest one replaces the others
        for case_id in other.cases
    }


def other_machine(
    stored: CaseBaseline, now: Environment, *, world_size: int, nodes: int = 1
) -> str | None:
    """Describe the first stored session of another machine, or return None if there is none.

    One such session is enough: figures of two machines have no common level.
    """
    for session in stored.sessions:
        if found := mismatches(session.environment, now, world_size=world_size, nodes=nodes):
            return f"the session of {session.date[:10]} is of another machine: {'; '.join(found)}"
    return None


def mismatches(
    stored: Environment, now: Environment, *, world_size: int, nodes: int = 1
) -> list[str]:
    """Return each field that makes the machines incomparable for a case, with both values.

    A value that either environment lacks is not compared.
    """
    return [
        f"{name} {before}, here {after}"
        for name, before, after in checked_conditions(stored, now, world_size, nodes)
        if before != after
    ]


def same_software(stored: Environment, now: Environment) -> bool:
    """Return whether both environments have the same software, so that the control applies.

    If an upgrade slows the control's matrix product, the machine did not get slower.
    """
    return software(stored) == software(now)


def software(environment: Environment) -> tuple[str | None, ...]:
    """Return the versions of the software that the control depends on."""
    return tuple(getattr(environment, name) for name in _SOFTWARE)


def changes(stored: Environment, now: Environment) -> list[str]:
    """Return the other differences, as ``torch 2.12.0 → 2.13.0``."""
    variables = sorted(stored.variables.keys() | now.variables.keys())
    packages = sorted((stored.packages.keys() & now.packages.keys()) - {"torch"})  # has a field
    names = (*_INFORMATIVE, *variables, *(f"package {name}" for name in packages))
    differences = environment_differences(stored, now, names)
    for ranks in sorted(stored.transports.keys() & now.transports.keys()):
        before, after = stored.transports[ranks], now.transports[ranks]
        if before != after:
            differences.append(change_text(f"NCCL's transport of {ranks}", before, after))
    return differences


def environment_differences(
    before: Environment, after: Environment, names: Iterable[str]
) -> list[str]:
    """Return which of these conditions differ, each with both values."""
    return field_changes(before.conditions(), after.conditions(), names)


def checked_conditions(
    stored: Environment, now: Environment, world_size: int, nodes: int = 1
) -> Iterator[tuple[str, str, str]]:
    """Yield name and both values of each checked field that both environments have.

    Nodes with GPUs of one type share their baselines, and so do the hosts of a pool. Other CPU
    hosts are other machines, as one CPU host is.
    """
    # Not by name: drivers before 2021 write it without "NVIDIA".
    yield "accelerator", stored.accelerator_key, now.accelerator_key
    here = world_size // nodes  # ranks of a node
    for name, before, after in (
        ("interconnect", stored.link_of(here), now.link_of(here)),
        ("peer access", stored.peer_access_of(here), now.peer_access_of(here)),
        ("PCIe under load", stored.pcie_of(here), now.pcie_of(here)),
    ):
        if before and after:
            yield name, before, after
    are_alike = stored.cuda is not None or stored.pool is not None
    if nodes > 1 and not are_alike and stored.hosts and now.hosts:
        yield "hosts", stored.hosts, now.hosts
    for name, old, new, unit in (
        ("memory", stored.gpu_memory, now.gpu_memory, 2**30),
        ("power limit", stored.power_limit_w, now.power_limit_w, 1),
    ):
        if old and new and abs(old / new - 1) > _SAME:
            suffix = "W" if unit == 1 else "GiB"
            yield name, f"{old / unit:.0f} {suffix}", f"{new / unit:.0f} {suffix}"


# The stored sessions of a machine as the rule takes them: histories, priors and controls.


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

    def clock_changes(self, case_id: str, session: Session) -> list[ClockChange]:
        """Return the clocks of a session that differ from those of the baseline."""
        return clock_changes(session, self.of(case_id, STEP_TIME.name).at_level)

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


# The clocks of GPUs under load beside those of the baseline: a slower clock is not the code's.
#
# Somebody may lock a clock or lower a limit, and heat lowers it. A reason for a reduced clock that
# is asserted costs nothing by itself: a warm card has it in every session, at the clock of its
# baseline.


_SAME_CLOCK = 0.02  # clocks under load that differ by less: readings vary by as much
_HALF = 0.5  # of a slow-down: what explains less of it is no cause
_TITLES: dict[ClockName, str] = {"sm_clock_mhz": "GPU", "memory_clock_mhz": "GPU memory"}


class ClockChange(NamedTuple):
    """A clock that differs from that of the baseline: the medians over launches, in MHz."""

    name: ClockName
    before: float
    after: float

    @property
    def ratio(self) -> float:
        return self.after / self.before

    def __str__(self) -> str:
        return f"{_TITLES[self.name]} clock {self.after:,.0f} MHz, baseline {self.before:,.0f} MHz"


def clock_changes(session: Session, before: Sequence[Session]) -> list[ClockChange]:
    """Return the clocks that changed since ``before``, as far as both sides have them."""
    found = []
    for name in CLOCKS:
        now, then = session.values(name), [one for old in before for one in old.values(name)]
        if now and then:
            found.append(ClockChange(name, statistics.median(then), statistics.median(now)))
    return [change for change in found if abs(change.ratio - 1) > _SAME_CLOCK]


def as_conditions(changes: Sequence[ClockChange]) -> tuple[str, ...]:
    """Return the changes in the form of other changed conditions."""
    return tuple(
        f"{_TITLES[one.name]} clock under load {one.before:,.0f} → {one.after:,.0f} MHz"
        for one in changes
    )


def with_clocks(
    finding: Finding, measurement: Measurement, changes: Sequence[ClockChange]
) -> Finding:
    """Add changed clocks to a finding, which is INVALID if they explain why the step is slower.

    A step takes at most as much longer as a clock is slower. What is left of a REGRESSION beyond
    that is the code's, and so is a power limit that the ranks reach by themselves: then it is
    only noted. A clock does not explain a scaling cost: the step of one rank has the same clock.
    """
    if not changes:
        return finding
    finding = msgspec.structs.replace(finding, changed=(*finding.changed, *as_conditions(changes)))
    verdict, lowest = finding.verdict, min(changes, key=lambda change: change.ratio)
    is_slower = verdict.outcome.is_slower and finding.metric == STEP_TIME.name
    if not is_slower or verdict.ratio is None or finding.tolerance is None or lowest.ratio >= 1:
        return finding
    what = f"{lowest}; {_cause(lowest, measurement.launches)}"
    is_enough = 1 / lowest.ratio - 1 >= _HALF * (verdict.ratio - 1)
    explains = is_enough and verdict.ratio * lowest.ratio < 1 + finding.tolerance
    if not explains or _reach_their_limit(measurement.launches):
        return finding.noted(NoteKind.CLOCK, what)
    what = f"{what}; if the clock is meant to stay, accept this session"
    return finding.noted(NoteKind.OTHER_CLOCK, what, outcome=Outcome.INVALID)


def _cause(change: ClockChange, launches: Sequence[LaunchResult]) -> str:
    if change.name == "memory_clock_mhz":
        return "somebody locked it (nvidia-smi -rmc)"
    if _mostly(launches, HEAT):
        return "heat holds it down (cool it)"
    if _reach_their_limit(launches):
        return "the ranks reach the power limit, which is a part of the step's cost"
    return "somebody locked it (nvidia-smi -rgc) or the card is capped (-q -d PERFORMANCE)"


def _reach_their_limit(launches: Sequence[LaunchResult]) -> bool:
    """Return whether power alone limits the clock. Another limit would be another machine."""
    return _mostly(launches, {POWER_CAP}) and not _mostly(launches, HEAT)


def _mostly(launches: Sequence[LaunchResult], reasons: frozenset[Throttle] | set[Throttle]) -> bool:
    """Return whether one of the reasons reduced a GPU's clock in half of the launches or more."""
    found = [
        any(
            rank.load is not None and not reasons.isdisjoint(rank.load.throttle or ())
            for rank in launch.ranks
        )
        for launch in launches
    ]
    return 2 * sum(found) >= len(found)


# The hosts of a pool: how a verdict compares them, and a host that does not fit the others.
#
# A host does not fit if its control is unlike that of the others. The control is a frozen matrix
# product that is timed in every launch. The code cannot slow it down, so a slow control shows the
# host, and a slow-down of the code cannot pass for it.


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
    """Note that a finding compares this host with the others of its pool.

    It is INVALID if the host does not fit, and its times with it.
    """
    if outlier_host is not None and metric_spec(finding.metric).disturbed_by is not None:
        what, invalid = str(outlier_host), Outcome.INVALID  # it begins no row of suspects
        return finding.noted(NoteKind.OTHER_HOST, what, outcome=invalid, chance=None)
    return finding.noted(NoteKind.HOSTS, counted(finding.sessions, "host"))


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
