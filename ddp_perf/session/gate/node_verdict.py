"""The verdict on the nodes of a case: each beside the others of the same session.

A change of the code cancels in the comparison, and a slow node never becomes its own baseline. A
node that is slow for the first time is suspect: a launch in a slow mode may be the reason. It is
red if half of its slow-down is left in its next session, and stays red until it is gone.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Mapping, Sequence

import msgspec

from ddp_perf.baselines.save import is_comparable
from ddp_perf.core.baseline import Baseline, CaseBaseline
from ddp_perf.core.environment import Environment
from ddp_perf.core.measurement import Finding, LaunchSummary, Measurement, NodeFinding
from ddp_perf.core.metric import NODES, STEP_TIME, gated_metrics
from ddp_perf.core.metric_history import by_half_day
from ddp_perf.core.session import Session
from ddp_perf.core.verdict import Outcome, Verdict
from ddp_perf.render.units import counted
from ddp_perf.session.gate.disturbance import prevailing_disturbance
from ddp_perf.session.gate.over_nodes import figures_by_node
from ddp_perf.stats.alike_nodes import (
    LEAST_NODES,
    NodeJudgement,
    Offsets,
    judge_nodes,
    node_spread,
    offsets_to_others,
    usual_offsets,
)
from ddp_perf.stats.summary import as_session

# Of the tolerance of the step time. Nodes of one session are compared more exactly than sessions
# are, and a step over many nodes takes as long as on the slowest one.
_TOLERANCE_SHARE = 0.5
_LEFT = 0.5  # of a slow-down, at most, where a node is mended
_REMEDY = "Leave such a node out of the cluster file, or drain it, until it is mended"


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
    measurement: Measurement,
    session: Session,
    stored: CaseBaseline | None,
    *,
    rate: float,
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
    """Return a finding on the code with the nodes over which it was judged in its reason."""
    if finding.value is None:
        return finding  # it is judged by other than figures
    slow = [one.node for one in of_nodes.nodes if one.is_slow]
    healthy = {launch.node for launch in measurement.launches} - {*slow}
    if not healthy:
        reason = f"no node is left that is not slow: {', '.join(slow)}"
        verdict = Verdict(outcome=Outcome.UNDECIDED, reason=reason)
        return msgspec.structs.replace(finding, verdict=verdict)
    without = f", without {', '.join(slow)}" if slow else ""
    used = counted(len(healthy), "node")
    # The rule took each node as a launch.
    found = finding.verdict.reason.replace("launches", "nodes")
    reason = f"{found}. Over {used}{without}"
    return msgspec.structs.replace(
        finding,
        verdict=msgspec.structs.replace(finding.verdict, reason=reason),
        launches=of_nodes.launches,
    )


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
    shown = f"{name} is the slowest ({100 * (by - 1):+.1f} %)"
    how = f"nodes differ by {100 * node_spread(offsets).sd:.1f} %"
    if by >= 1 + tolerance / _TOLERANCE_SHARE:
        reason = f"{shown}, and too few nodes and sessions show whether it always was; {how}"
        return Verdict(outcome=Outcome.UNDECIDED, reason=reason, ratio=by)
    reason = (
        f"none of {counted(len(found), 'node')} is clearly slower than the others by"
        f" {100 * tolerance:g} %; {shown}; {how}"
    )
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
        text += f"; {LEAST_NODES} nodes or more show whether it is mended"
    return text if node.disturbance is None else f"{text}: {node.disturbance}"
