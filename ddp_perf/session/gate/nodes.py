"""The nodes of a case: which one computes longer, and the verdict on each."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from ddp_perf.baselines.save import is_comparable
from ddp_perf.core.baseline import Baseline, CaseBaseline, Session, by_half_day
from ddp_perf.core.case import RANKS, Case, work_without
from ddp_perf.core.environment import Environment
from ddp_perf.core.launch import LaunchResult
from ddp_perf.core.measurement import Finding, LaunchSummary, Measurement, NodeFinding
from ddp_perf.core.metric import NODES, STEP_TIME, gated_metrics
from ddp_perf.core.note import NoteKind
from ddp_perf.core.verdict import Outcome, Verdict
from ddp_perf.render.units import counted, percent_change, short_percent
from ddp_perf.session.gate.disturbance import prevailing_disturbance
from ddp_perf.stats.alike_nodes import (
    LEAST_NODES,
    NodeFigures,
    NodeJudgement,
    Offsets,
    judge_nodes,
    log_level,
    node_spread,
    offsets_to_all,
    offsets_to_others,
    usual_offsets,
    visit_spread,
)
from ddp_perf.stats.interval import CONFIDENCE, Estimate, half_width, mean_estimate, upper_t
from ddp_perf.stats.rule.comparison import NOT_SAMPLED, Sampling
from ddp_perf.stats.summary import as_session

# Sessions of alike nodes as the rule takes them: over all nodes, each in the place of a launch.
#
# The figure of a node is its level, less what it usually has beside the others in all sessions: so
# another sample of nodes does not look like another code. Nodes that were slower than the others,
# or not as usual (mended, replaced under the same name, slow for the first time), are left out:
# they are no evidence of the code.


_LEVEL = 0.005  # on each side: chance that an unchanged node is left out of a session
_LEAST = 0.005  # log ratio: a smaller change of one node hardly moves the mean of several


def figures_by_node(session: Session, metric: str) -> dict[str, list[float]]:
    """Return the figures of a metric by node."""
    figures: dict[str, list[float]] = {}
    for name, launch in zip(session.node_names(), session.launches, strict=True):
        if metric in launch:
            figures.setdefault(name, []).append(launch[metric])
    return figures


class _Known(msgspec.Struct, frozen=True, kw_only=True):
    """The nodes of a case by one metric, as all of its sessions show them."""

    usual: Offsets  # of each node
    unlike: dict[int, set[str]]  # by the place of a session: its nodes that were not as usual

    @property
    def sampling(self) -> Sampling:
        """The variance of the level of a node that was not measured before."""
        if not self.usual:
            return NOT_SAMPLED
        spread = node_spread(self.usual)
        return Sampling(variance=spread.sd**2, degrees_of_freedom=spread.degrees_of_freedom)


class OverNodes:
    """The sessions of one case, which are taken over their nodes if any of them names its nodes."""

    def __init__(self, sessions: Iterable[Session], left_out: Collection[str] = ()) -> None:
        self._sessions = list(sessions)
        self._left_out = left_out  # of every session, beside the nodes that were slow in it
        self._named = any(session.nodes for session in self._sessions)
        self._known: dict[str, _Known] = {}  # by metric
        self.sampling: dict[str, Sampling] = {}  # of the newest session, by metric

    def taken(self) -> tuple[Session, ...]:
        """Return the sessions with the figures of each node in the place of a launch."""
        if not self._named:
            return tuple(self._sessions)
        return tuple(map(self._taken, range(len(self._sessions))))

    def _taken(self, place: int) -> Session:
        session = self._sessions[place]
        names = dict.fromkeys(name for launch in session.launches for name in launch)
        columns = {name: self._figures(place, name) for name in names}
        return msgspec.structs.replace(
            session,
            launches=tuple(
                {name: value for name, value in zip(columns, row, strict=True) if value is not None}
                for row in itertools.zip_longest(*columns.values())
            ),
            terms=(),
            nodes=(),
        )

    def has_healthy(self, session: Session) -> bool:
        """Return whether a node of the session was not slow, and is not left out."""
        return any(self._is_healthy(node, session) for node in session.node_names())

    def _is_healthy(self, node: str, session: Session) -> bool:
        return node not in session.slow_nodes and node not in self._left_out

    def _figures(self, place: int, metric: str) -> list[float]:
        """Return the figure of each node; those of the launches if one has no logarithm.

        The nodes that are not as usual count only if most of them are not.
        """
        session = self._sessions[place]
        figures = self._healthy(session, metric)
        if not figures:
            return session.values(metric)
        if metric not in self._known:
            self._known[metric] = self._learn(metric)
        known = self._known[metric]
        as_usual: NodeFigures = {
            node: values
            for node, values in figures.items()
            if node not in known.unlike.get(place, ())
        }
        used = as_usual if 2 * len(as_usual) > len(figures) else figures
        if place == len(self._sessions) - 1:
            self.sampling[metric] = self._sampled(used, known.sampling)
        return [
            math.exp(log_level(values) - known.usual.get(node, 0.0))
            for node, values in used.items()
        ]

    def _sampled(self, used: Collection[str], of_node: Sampling) -> Sampling:
        """Return the variance that the nodes of the newest session add that have no other one."""
        before = {name for session in self._sessions[:-1] for name in session.node_names()}
        unseen = sum(node not in before for node in used)
        variance = of_node.variance * unseen / len(used) ** 2
        return msgspec.structs.replace(of_node, variance=variance)

    def _learn(self, metric: str) -> _Known:
        """Return what nodes usually are, and where each is not."""
        offsets = {
            place: offsets_to_all(of_nodes)
            for place, one in enumerate(self._sessions)
            if len(of_nodes := self._healthy(one, metric)) > 1
        }
        usual = usual_offsets([*offsets.values()])
        spread = visit_spread([*offsets.values()])
        bound = _LEAST
        if spread is not None:
            bound = max(bound, upper_t(spread.degrees_of_freedom, _LEVEL) * spread.sd)
        return _Known(
            usual=usual,
            unlike={
                place: {node for node, offset in one.items() if abs(offset - usual[node]) > bound}
                for place, one in offsets.items()
            },
        )

    def _healthy(self, session: Session, metric: str) -> NodeFigures:
        """Return the figures of the nodes that were not slow, or of all if each was.

        There is none if one of them has no logarithm: no measurement gives it, and the rule refuses
        it.
        """
        figures = figures_by_node(session, metric)
        healthy: NodeFigures = {
            node: values for node, values in figures.items() if self._is_healthy(node, session)
        }
        healthy = healthy or figures
        every: Collection[float] = [value for values in healthy.values() for value in values]
        return healthy if all(value > 0 and math.isfinite(value) for value in every) else {}


def over_nodes(
    baseline: Baseline,
    sessions: Mapping[str, Sequence[Session]],
    *,
    left_out: Mapping[str, Collection[str]] = {},
) -> tuple[Baseline, dict[str, tuple[Session, ...]], dict[str, dict[str, Sampling]]]:
    """Return the baseline and the judged sessions, by case id, over their nodes.

    The last value is the variance that new nodes add to the newest session, by metric.
    ``left_out`` has further nodes of each case that are left out of all its sessions.
    """
    views = {
        case_id: OverNodes(
            (*_stored(baseline, case_id), *sessions.get(case_id, ())), left_out.get(case_id, ())
        )
        for case_id in (*baseline.cases, *sessions)
    }
    taken = {case_id: view.taken() for case_id, view in views.items()}
    cases = {
        case_id: msgspec.structs.replace(
            stored, sessions=_informing(stored.sessions, taken[case_id], views[case_id])
        )
        for case_id, stored in baseline.cases.items()
    }
    judged = {case_id: taken[case_id][len(_stored(baseline, case_id)) :] for case_id in sessions}
    sampling = {case_id: views[case_id].sampling for case_id in sessions}
    return msgspec.structs.replace(baseline, cases=cases), judged, sampling


def _informing(
    stored: Sequence[Session], taken: Sequence[Session], view: OverNodes
) -> tuple[Session, ...]:
    """Return the stored sessions, as taken, that have a healthy node, or all if none has."""
    pairs = list(zip(stored, taken[: len(stored)], strict=True))
    healthy = tuple(one for before, one in pairs if view.has_healthy(before))
    return healthy or tuple(one for _, one in pairs)


def _stored(baseline: Baseline, case_id: str) -> Sequence[Session]:
    stored: CaseBaseline | None = baseline.cases.get(case_id)
    return stored.sessions if stored is not None else ()


# The verdict on the nodes of a case: each beside the others of the same session.
#
# A change of the code cancels in the comparison, and a slow node never becomes its own baseline. A
# node that is slow for the first time is suspect: a launch in a slow mode may be the reason. It is
# red if half of its slow-down is left in its next session, and stays red until it is gone.


# Of the tolerance of the step time. Nodes of one session are compared more exactly than sessions
# are, and a step over many nodes takes as long as on the slowest one.
_TOLERANCE_SHARE = 0.5
_LEFT = 0.5  # of a slow-down, at most, where a node is mended
_REMEDY = "Leave such a node out of the cluster file, or drain it, until it is fixed"


class _Visit(msgspec.Struct, frozen=True, kw_only=True):
    """One stored session of a node."""

    date: str
    offset: float  # log ratio to the other nodes
    slow_since: str | None  # None: it was not slow


def judge_each_node(
    measurements: Mapping[str, Measurement],
    summaries: Mapping[str, Sequence[LaunchSummary]],
    baseline: Baseline,
    environment: Environment,
    *,
    alpha: float,
) -> list[Finding]:
    """Judge the nodes of each case whose nodes are measured one by one.

    ``alpha`` is the false-alarm rate of a verdict on the code. The nodes of a case have the rate of
    all its verdicts again, so that a session has its own rate once more.
    """
    findings = []
    for case_id, measurement in measurements.items():
        stored = baseline.cases.get(case_id)
        if stored is not None and not is_comparable(stored, measurement.case):
            stored = None
        session = as_session(summaries[case_id], environment, date="")
        rate = alpha * len(gated_metrics(measurement.case))
        found = judge_nodes_of(measurement, session, stored, rate=rate)
        findings += [] if found is None else [found]
    return findings


def judge_nodes_of(
    measurement: Measurement, session: Session, stored: CaseBaseline | None, *, rate: float
) -> Finding | None:
    """Judge the nodes of a case; None if they are not measured one by one.

    ``session`` has the launches of the measurement. ``rate`` is the probability that a session of
    healthy nodes calls any of them slow.
    """
    if not measurement.nodes:
        return None
    case, tolerance = measurement.case, _TOLERANCE_SHARE * measurement.case.tolerances.step_time
    visits = _visits(stored.sessions if stored is not None else ())
    figures, found = figures_by_node(session, STEP_TIME.name), []
    if len(figures) >= LEAST_NODES:
        healthy = _healthy(visits)
        usual = usual_offsets(healthy)
        for judged in judge_nodes(figures, healthy):
            least, node = min(judged.offset, judged.slower), judged.node
            clear = judged.chance <= rate and least >= math.log1p(tolerance)
            before, level = visits.get(node, ()), usual.get(node, 0.0)
            found.append(_compared(judged, before, measurement, usual=level, is_clear=clear))
    else:  # they show neither that a node is slow, nor that one is mended
        found = [_still_slow(node, visits[node], measurement) for node in figures if node in visits]
        found = [one for one in found if one.is_slow]
    found += [
        NodeFinding(node=node, failure=_failure(measurement, node))
        for node in measurement.nodes
        if node not in {one.node for one in found}
    ]
    verdict = _verdict(found, tolerance)
    return Finding(
        case_id=case.id,
        metric=NODES,
        verdict=verdict,
        launches=len(measurement.launches),
        sessions=len({one.date for of_node in visits.values() for one in of_node}),
        tolerance=tolerance,
        nodes=tuple(found),
    )


def slow_since(finding: Finding | None, date: str) -> dict[str, str]:
    """Return the slow nodes of a session of ``date``, with the date since when each is slow."""
    nodes = finding.nodes if finding is not None else ()
    return {one.node: one.since or date for one in nodes if one.is_slow}


def name_nodes(finding: Finding, of_nodes: Finding, measurement: Measurement) -> Finding:
    """Note the nodes over which a finding on the code was judged."""
    if finding.value is None:
        return finding  # it is judged by other than figures
    slow = [one.node for one in of_nodes.nodes if one.is_slow]
    healthy = {launch.node for launch in measurement.launches} - {*slow}
    if not healthy:
        verdict = Verdict(outcome=Outcome.UNDECIDED, reason=finding.verdict.reason)
        found = msgspec.structs.replace(finding, verdict=verdict)
        return found.noted(NoteKind.SLOW_NODES, ", ".join(slow))
    without = f", without {', '.join(slow)}" if slow else ""
    found = msgspec.structs.replace(finding, launches=of_nodes.launches)
    return found.noted(NoteKind.NODES, counted(len(healthy), "node") + without)


def _visits(sessions: Sequence[Session]) -> dict[str, list[_Visit]]:
    """Return the stored visits of each node, oldest first. A session of one node compares none."""
    visits: dict[str, list[_Visit]] = {}
    for session in by_half_day([one for one in sessions if one.values(STEP_TIME.name)]):
        figures = figures_by_node(session, STEP_TIME.name)
        for node, offset in (offsets_to_others(figures) if len(figures) > 1 else {}).items():
            slow_since = session.slow_nodes.get(node)
            visit = _Visit(date=session.date, offset=offset, slow_since=slow_since)
            visits.setdefault(node, []).append(visit)
    return visits


def _healthy(visits: Mapping[str, Sequence[_Visit]]) -> list[Offsets]:
    """Return the offsets of each session, of the nodes that were not slow in it."""
    sessions: dict[str, dict[str, float]] = {}
    for node, of_node in visits.items():
        slow = {visit.date for visit in of_node if visit.slow_since is not None}
        slow |= {visit.date for visit in _marked(of_node)}
        for visit in of_node:
            if visit.date not in slow:
                sessions.setdefault(visit.date, {})[node] = visit.offset
    return list(sessions.values())


def _compared(
    judged: NodeJudgement,
    visits: Sequence[_Visit],
    measurement: Measurement,
    *,
    usual: float,
    is_clear: bool,
) -> NodeFinding:
    """Return a node beside the others; it is slow if that is clear, or if it was and still is.

    ``usual`` is its offset where it was not slow: 0 if it always was, or is new.
    """
    case_id, node = measurement.case.id, judged.node
    run = marked = _marked(visits)
    if marked:
        slower = statistics.fmean(visit.offset for visit in marked) - usual
        slow = judged.offset >= usual + _LEFT * slower
    else:
        slow = is_clear
        run = _run(visits, judged.usual + _LEFT * judged.slower)
    mean = statistics.fmean([judged.offset, *(visit.offset for visit in run)])
    first = (visits[-1].slow_since or run[0].date) if run else None
    of_node = measurement.on_node(node)
    return NodeFinding(
        node=node,
        ratio=math.exp(judged.offset),
        slower=math.exp(mean) if slow else None,
        sessions=1 + len(run) if slow else 0,
        since=first if slow else None,
        is_suspect=slow and not marked,
        failure=_failure(measurement, node),
        disturbance=prevailing_disturbance(case_id, {case_id: of_node}),
    )


def _still_slow(node: str, visits: Sequence[_Visit], measurement: Measurement) -> NodeFinding:
    """Return a node that is not compared: slow, if it was slow in its newest visit."""
    marked, newest = _marked(visits), visits[-1]
    return NodeFinding(
        node=node,
        slower=math.exp(statistics.fmean(visit.offset for visit in marked)) if marked else None,
        sessions=len(marked),
        since=newest.slow_since,
        is_suspect=newest.slow_since is not None and newest.slow_since >= newest.date,
        failure=_failure(measurement, node),
    )


def _marked(visits: Sequence[_Visit]) -> list[_Visit]:
    """Return the visits since the node became slow, if it was slow in the newest one."""
    since = visits[-1].slow_since if visits else None
    if since is None:
        return []
    first = min(since, visits[-1].date)  # the newest one may have begun before, in its half-day
    return [visit for visit in visits if visit.date >= first]


def _run(visits: Sequence[_Visit], offset: float) -> list[_Visit]:
    """Return the newest visits in a row with at least this offset."""
    return [*itertools.takewhile(lambda visit: visit.offset >= offset, reversed(visits))][::-1]


def _failure(measurement: Measurement, node: str) -> str | None:
    failures = measurement.on_node(node).failures
    return str(failures[0]).splitlines()[0] if failures else None


def _verdict(found: Sequence[NodeFinding], tolerance: float) -> Verdict:
    others = sum(one.ratio is not None for one in found) - 1  # those that failed are not compared
    bad = [one for one in found if one.failure or (one.is_slow and not one.is_suspect)]
    worst = [*bad, *(one for one in found if one.is_suspect and not one.failure)]
    if worst:
        slowest = max((one.slower for one in worst if one.slower is not None), default=None)
        reason = "; ".join(_describe(one, others) for one in worst)
        return Verdict(
            outcome=Outcome.BAD_NODE if bad else Outcome.SUSPECT,
            reason=f"{reason}. {_REMEDY}" if bad else reason,
            ratio=slowest,
        )
    offsets = {one.node: math.log(one.ratio) for one in found if one.ratio is not None}
    if not offsets:
        few = counted(len(found), "node")
        reason = f"{few} cannot show which of them is slower; measure {LEAST_NODES} or more"
        return Verdict(outcome=Outcome.UNDECIDED, reason=reason)
    name = max(offsets, key=offsets.__getitem__)
    by = math.exp(offsets[name])
    shown = f"{name} is the slowest of {counted(len(found), 'node')} ({percent_change(by)})"
    how = f"nodes differ by {100 * node_spread(offsets).sd:.1f} %"
    if by >= 1 + tolerance / _TOLERANCE_SHARE:
        reason = f"{shown}, and too few nodes and sessions show whether it always was; {how}"
        return Verdict(outcome=Outcome.UNDECIDED, reason=reason, ratio=by)
    reason = f"{shown}; {how}, and {short_percent(tolerance)} is allowed"
    return Verdict(outcome=Outcome.PASS, reason=reason, ratio=by)


def _describe(node: NodeFinding, others: int) -> str:
    if node.failure is not None:
        return node.failure
    by, is_compared = 100 * ((node.slower or 1.0) - 1), node.ratio is not None
    beside = f"the {counted(others, 'other')}" if is_compared else "others"
    text = f"node {node.node} {'is' if is_compared else 'was'} {by:.1f} % slower than {beside}"
    if node.since is not None:
        text += f", since {node.since[:10]} ({counted(node.sessions, 'session')})"
    if node.is_suspect:
        text += "; slow for the first time: BAD NODE if its next session confirms it"
    if not is_compared:
        text += f"; {LEAST_NODES} nodes or more show whether it is fixed"
    return text if node.disturbance is None else f"{text}: {node.disturbance}"


# The nodes of a case: which one computes longer, and which link the ranks wait for.
#
# Both come from seconds that each rank measured by its own clock: clocks of nodes are not compared.


_LEAST_LAUNCHES = 3  # of a node: fewer do not show how its launches differ
_WIDEST = 2.0  # high ÷ low of an interval that shows anything


class NodeCompute(msgspec.Struct, frozen=True, kw_only=True):
    """The own work of a typical rank of a node, against that of the other nodes."""

    node: str
    ranks: tuple[int, ...]
    ratio: Estimate  # ÷ the median of the other nodes; 95 % hold for all nodes together
    launches: int

    @property
    def is_slower(self) -> bool:
        """True if chance does not explain it."""
        return self.ratio.low is not None and self.ratio.low > 1

    def __str__(self) -> str:
        ends = ""
        if self.ratio.low is not None and self.ratio.high is not None:
            ends = f" ({100 * (self.ratio.low - 1):.1f} to {100 * (self.ratio.high - 1):.1f} %)"
        return (
            f"{self.node}, ranks {', '.join(map(str, self.ranks))}: computes"
            f" {100 * (self.ratio.value - 1):.1f} %{ends} longer than the others,"
            f" {counted(self.launches, 'launch')}"
        )


class ExposedByLink(msgspec.Struct, frozen=True, kw_only=True):
    """The exposed communication of a case over nodes, and the part that one node has too."""

    exposed_s: Estimate
    between_s: Estimate  # more than the case of one node in the same round: the link between nodes
    launches: int

    @property
    def is_mostly_between(self) -> bool | None:
        """True if the link between nodes causes most of it; None: chance decides."""
        half_s, part = self.exposed_s.value / 2, self.between_s
        if part.low is None or part.high is None or part.low <= half_s <= part.high:
            return None
        return part.low > half_s


def slowest_node(
    launches: Sequence[LaunchResult], summaries: Sequence[LaunchSummary]
) -> NodeCompute | None:
    """Return the node whose ranks work longest, or None without several nodes and their terms.

    The work of a node is that of its median rank, the lower of two: one rank that lags does not
    make its node slow. None, too, if too few launches show which node it is: fewer than three of
    each, or ratios that are too far apart.
    """
    logs: dict[str, list[float]] = {}
    ranks: dict[str, tuple[int, ...]] = {}
    for launch, summary in zip(launches, summaries, strict=True):
        for name, (of_node, ratio) in _ratios(launch, summary).items():
            logs.setdefault(name, []).append(math.log(ratio))
            ranks[name] = of_node
    logs = {name: own for name, own in logs.items() if len(own) >= _LEAST_LAUNCHES}
    if not logs:
        return None
    slowest = max(logs, key=lambda name: statistics.fmean(logs[name]))
    estimate = _exponential(logs[slowest], of=len(logs))
    if estimate.low is None or estimate.high is None or estimate.high > _WIDEST * estimate.low:
        return None
    return NodeCompute(
        node=slowest, ranks=ranks[slowest], ratio=estimate, launches=len(logs[slowest])
    )


def _ratios(
    launch: LaunchResult, summary: LaunchSummary
) -> dict[str, tuple[tuple[int, ...], float]]:
    """Return the ranks of each node and its work ÷ that of the others, by the node's name."""
    terms = summary.decomposition
    if terms is None or not terms.sees_communication or not launch.has_several_nodes:
        return {}
    by_host = len(set(launch.hosts)) > 1 and len(set(launch.hosts)) == len(launch.hosts)
    ranks: dict[str, list[int]] = {}
    for rank in launch.ranks:
        place = rank.placement
        # A cluster may give a host another number in each launch.
        name = f"node {place.host}" if by_host else place.node_name
        ranks.setdefault(name, []).append(place.rank)
    work = {
        name: statistics.median_low(terms.ranks[rank].own_s for rank in of_node)
        for name, of_node in ranks.items()
    }
    found = {}
    for name, seconds in work.items():
        others_s = statistics.median_low(other for one, other in work.items() if one != name)
        if seconds > 0 and others_s > 0:
            found[name] = tuple(ranks[name]), seconds / others_s
    return found


def _exponential(logs: Sequence[float], *, of: int) -> Estimate:
    """Return the geometric mean with the interval of one among ``of`` means (Bonferroni)."""
    mean = statistics.fmean(logs)
    tail = (1 - CONFIDENCE) / 2 / of
    margin = half_width(statistics.stdev(logs), len(logs), tail)
    low, high = (math.exp(min(mean + side * margin, 300.0)) for side in (-1, 1))
    return Estimate(value=math.exp(mean), low=low, high=high)


def exposed_by_link(
    case_id: str,
    measurements: Mapping[str, Measurement],
    summaries: Mapping[str, Sequence[LaunchSummary]],
) -> ExposedByLink | None:
    """Divide the exposed communication of a case over nodes by the link that causes it.

    The case of one of its nodes alone, with the same batch per rank, exposes what is due to the
    link within a node. None: no round has both cases, or their terms do not see communication.
    """
    one_node = _on_one_node(measurements[case_id].case, measurements)
    if one_node is None:
        return None
    within = _exposed(summaries.get(one_node, ()))
    rounds = _exposed(summaries[case_id])
    pairs = [(rounds[number], within[number]) for number in rounds if number in within]
    if not pairs:
        return None
    return ExposedByLink(
        exposed_s=mean_estimate([across_s for across_s, _ in pairs]),
        between_s=mean_estimate([across_s - within_s for across_s, within_s in pairs]),
        launches=len(pairs),
    )


def _on_one_node(case: Case, measurements: Mapping[str, Measurement]) -> str | None:
    """Return the id of the case that does the same work on one of the nodes: as much per rank."""
    if case.nodes == 1 or case.ranks_per_node == 1:
        return None
    work = work_without(case.work(), RANKS)
    return next(
        (
            case_id
            for case_id, one in measurements.items()
            if (one.case.nodes, one.case.world_size) == (1, case.ranks_per_node)
            and one.case.samples_per_step * case.nodes == case.samples_per_step
            and work_without(one.case.work(), RANKS) == work
        ),
        None,
    )


def _exposed(rows: Sequence[LaunchSummary]) -> dict[int, float]:
    """Return the exposed communication of each launch that has it, by round."""
    return {
        row.round: row.decomposition.terms["exposed"]
        for row in rows
        if row.decomposition is not None and row.decomposition.sees_communication
    }
