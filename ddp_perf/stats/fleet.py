"""Alike nodes that run one case: which of them is slower than the others, and what the code costs.

With y the log of a launch's figure, of session s on node i::

    y = code + session_s + node_i + visit_is + launch        (independent, normal)

*Node.* The others of the same session show what the session and the code cost, so a node is judged
by its offset: its level less the median of the others. Its level in a session is the median of its
launches if there are three or more, else their mean. It is slow since one of its visits if its
offset since then is more than its visits before that let expect. These shrink to the level of all
nodes, as in a mixed model (Robinson, "That BLUP is a good thing", Statistical Science 6, 1991): a
node without any is expected there, to the spread of nodes. Medians of visits are compared, because
a launch may be in a slow mode. A session has as many
verdicts as nodes, so they are taken together: of the nodes that it calls slow, the share of healthy
ones is at most the given rate (Benjamini & Hochberg, JRSS B 57, 1995), and if all are healthy, that
is the probability of any.

*Code.* The figure of each node, less what earlier visits show of the node, takes the place that a
launch has on one machine: ``Var = σ²_session + (σ²_node + σ²_visit + σ²_launch/launches) / nodes``.
"""

from __future__ import annotations

import bisect
import itertools
import math
import statistics
from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
from scipy import special

from ddp_perf.core.metric_history import REFERENCE_SESSIONS
from ddp_perf.stats.robust import robust_sd, sd_of_deviations
from ddp_perf.stats.rule.comparison import Comparison, upper_session, upper_t
from ddp_perf.stats.rule.inputs import Figures
from ddp_perf.stats.rule.session_variance import SessionSpread
from ddp_perf.stats.rule.variance_components import VarianceComponents, satterthwaite

NodeFigures = Mapping[str, Figures]  # of each node of a session, one figure for each launch
Offsets = Mapping[str, float]  # of each node of a session, its log ratio to the others

LEAST_NODES = 4  # fewer do not show which of them differs
# Of the tolerance of the step time. Nodes of one session are compared more exactly than sessions
# are, and a step over many nodes takes as long as on the slowest one.
TOLERANCE_SHARE = 0.5
LEFT = 0.5  # of a slow-down, at most, where a node is mended
DOUBTFUL = 0.05  # chance that a node that was slow is healthy: then it is no longer slow
# The precision of the median absolute deviation, as a share of that of the sd (Rousseeuw & Croux,
# JASA 88, 1993), and n × the variance of a median ÷ that of a value.
_MAD_EFFICIENCY, _MEDIAN_COST = 0.37, math.pi / 2
_LEAST_LAUNCHES = 3  # of a median that one of them does not move
_LIGHT_TAIL = 3  # visits
_ODD = tuple(3**power for power in range(12))  # visits


class NodeSpread(msgspec.Struct, frozen=True, kw_only=True):
    """The differences of alike nodes, as variances of logs with their degrees of freedom."""

    node: float  # from node to node, for good
    visit: float  # of a node's level, from session to session: its launches are in it
    node_df: float
    visit_df: float

    def expected(self, visits: Sequence[float]) -> float:
        """Return the offset to expect of a node after these visits: their median, shrunken."""
        return self._weight(len(visits)) * statistics.median(visits) if visits else 0.0

    def variance(self, before: float, since: int) -> float:
        """Return the variance of a median of ``since`` visits around what is expected before it."""
        return self.node * (1 - self._weight(before)) + self.visit * _of_median(since)

    def degrees_of_freedom(self, before: float, since: int) -> float:
        """Return the degrees of freedom of that variance."""
        node, visit = self.node * (1 - self._weight(before)), self.visit * _of_median(since)
        return satterthwaite((node, self.node_df), (visit, self.visit_df))

    def _weight(self, visits: float) -> float:
        if not (visits and self.node):
            return 0.0
        return self.node / (self.node + self.visit * _of_median(visits))


ALIKE = NodeSpread(node=0.0, visit=0.0, node_df=1.0, visit_df=1.0)  # until a session compares nodes


class NodeJudgement(msgspec.Struct, frozen=True, kw_only=True):
    """The judgement of one node of a session by the others."""

    node: str
    offset: float  # log ratio to the others in this session
    slower: float  # log ratio to the others, median of its visits since it became slow
    visits_since: int  # number of these visits, this one the last
    chance: float  # of visits as slow if the node did not change; over all starts that were tried
    is_slow: bool

    @property
    def ratio(self) -> float:
        """The node's figure ÷ that of the others since it became slow: 1.04 is 4 % slower."""
        return math.exp(self.slower)


class NodesJudgement(msgspec.Struct, frozen=True, kw_only=True):
    """The judgements of a session's nodes, the slowest first, and how alike nodes differ."""

    spread: NodeSpread
    nodes: tuple[NodeJudgement, ...]

    @property
    def offsets(self) -> dict[str, float]:
        """The offset of each node: what later sessions need of this one."""
        return {found.node: found.offset for found in self.nodes}


def judge_nodes(
    session: NodeFigures,
    earlier: Sequence[Offsets],
    *,
    tolerance: float,
    false_discovery_rate: float,
) -> NodesJudgement:
    """Judge each node of a session by the others and by its earlier visits; lower is better.

    ``earlier`` are the offsets of earlier sessions, the oldest first; nodes that one did not visit
    are missing in it. A node is slow if it is significantly slower, and by ``tolerance`` at least,
    also in this session. A launch in a slow mode looks like a slow node: visit it again.

    Raises ValueError if there are fewer than `LEAST_NODES` nodes, or a node has no launch.
    """
    if len(session) < LEAST_NODES:
        raise ValueError(f"{len(session)} nodes: at least {LEAST_NODES} show which one differs")
    spread = node_spread(session, earlier)
    visits = {node: visits_of(node, earlier) for node in session}
    offsets = node_offsets(session, {node: spread.expected(own) for node, own in visits.items()})
    centre = centre_variance(
        spread, nodes=len(session), visits=statistics.fmean(map(len, visits.values()))
    )
    found = [
        _judge_node(node, [*visits[node], offset], spread, tolerance, centre)
        for node, offset in offsets.items()
    ]
    slow = false_discoveries([one.chance for one in found], false_discovery_rate)
    judged = [
        msgspec.structs.replace(one, is_slow=is_slow)
        for one, is_slow in zip(found, slow, strict=True)
    ]
    return NodesJudgement(spread=spread, nodes=tuple(sorted(judged, key=lambda one: -one.slower)))


def log_level(figures: Figures) -> float:
    """Return the log of a node's level: a launch in a slow mode does not move that of three."""
    centre = statistics.median if len(figures) >= _LEAST_LAUNCHES else statistics.fmean
    return centre(np.log(figures).tolist())


def level_share(launches: int) -> float:
    """Return the variance of a node's level from its launches, as a share of that of a launch.

    That of a median is within 2 % of the exact one for odd numbers, and up to 15 % above for even.
    """
    if launches < _LEAST_LAUNCHES:
        return 1 / launches
    return _MEDIAN_COST / (launches + _MEDIAN_COST - 1)


def node_offsets(session: NodeFigures, expected: Offsets | None = None) -> dict[str, float]:
    """Return each node's log level less the median of the others, each less what it is expected at.

    So the offset is to the level of all nodes, whichever are in this session. Raises ValueError
    without another node, or without a launch.
    """
    if len(session) < 2 or not all(map(len, session.values())):
        raise ValueError("at least two nodes are needed, and a launch of each of them")
    logs = {node: log_level(figures) for node, figures in session.items()}
    levels = {node: log - (expected or {}).get(node, 0.0) for node, log in logs.items()}
    ordered = sorted(levels.values())
    return {node: log - _median_without(ordered, levels[node]) for node, log in logs.items()}


def centred_offsets(session: NodeFigures) -> dict[str, float]:
    """Return each node's log level less the median of all: what `code_figures` subtracts.

    The offsets to the others are further apart than the nodes: those of two are twice as far.
    """
    levels = {node: log_level(figures) for node, figures in session.items()}
    centre = statistics.median(levels.values())
    return {node: level - centre for node, level in levels.items()}


def node_spread(session: NodeFigures, earlier: Sequence[Offsets]) -> NodeSpread:
    """Estimate how alike nodes differ, robustly: a few slow ones do not widen it.

    The spread of all offsets is that of nodes and visits together; successive visits of a node
    differ by twice the variance of a visit. Both contain the error of the median of the others.
    Without a second visit the launches are all of a visit.
    """
    sessions = [*earlier, node_offsets(session)]
    nodes = {node for one in sessions for node in one}
    by_node = [visits_of(node, sessions) for node in sorted(nodes)]
    centred = 1 + _MEDIAN_COST / (statistics.fmean(map(len, sessions)) - 1)
    total = robust_sd([offset for visits in by_node for offset in visits]) ** 2 / centred
    moves = [abs(b - a) for visits in by_node for a, b in itertools.pairwise(visits)]
    launches, launch_df = _launch_noise(session)
    visit = (
        max(launches, sd_of_deviations(moves) ** 2 / 2 / centred) if moves else min(launches, total)
    )
    return NodeSpread(
        node=max(0.0, total - visit),
        visit=visit,
        node_df=robust_df(len(nodes) - 1),
        visit_df=robust_df(len(moves)) if moves else launch_df,
    )


def robust_df(values: float) -> float:
    """Return the degrees of freedom of a variance from the median absolute deviation."""
    return max(1.0, _MAD_EFFICIENCY * values)


def visits_of(node: str, sessions: Sequence[Offsets]) -> list[float]:
    """Return the offsets of a node in the sessions that visited it, in their order."""
    return [offsets[node] for offsets in sessions if node in offsets]


def false_discoveries(chances: Sequence[float], rate: float) -> list[bool]:
    """Return which hypotheses are rejected at a false-discovery rate (Benjamini & Hochberg 1995).

    The k smallest chances are rejected, with the largest k at which the k-th is ``rate × k ÷ n`` at
    most. Proved for independent chances; `benchmarks/fleet.py` measures it for offsets to one
    centre.
    """
    ordered = sorted(chances)
    limits = (rate * rank / len(ordered) for rank in range(1, len(ordered) + 1))
    below = [one for one, limit in zip(ordered, limits, strict=True) if one <= limit]
    return [bool(below) and chance <= below[-1] for chance in chances]


def code_figures(
    session: NodeFigures, visits: Mapping[str, Sequence[float]], spread: NodeSpread
) -> list[float]:
    """Return one figure for each node of a session, less what its visits let expect.

    The judge takes them as the launches of a session: `ddp_perf.stats.judge_launches`. Leave out
    the nodes that are slow: they are no evidence about the code.
    """
    return [
        math.exp(log_level(figures) - spread.expected(visits.get(node, ())))
        for node, figures in session.items()
    ]


def code_errors(
    spread: NodeSpread,
    *,
    session: float,
    nodes: int,
    visits: float,
    sessions: int,
) -> VarianceComponents:
    """Return the variance components of the code's verdict over so many nodes.

    ``session`` is the variance that all nodes of a session share, ``visits`` the earlier ones of a
    node, and ``sessions`` the stored ones. The figure of a node is the judge's launch.
    """
    of_node = spread.variance(visits, 1)
    return VarianceComponents(
        spread=SessionSpread(variance=session + of_node / nodes, degrees_of_freedom=sessions - 1),
        baseline_launch_noise=of_node / nodes,
        launch_variance=of_node,
        launch_df=sessions * (nodes - 1),
        launches=nodes,
        sessions=sessions,
        reference_sessions=min(sessions, REFERENCE_SESSIONS),
        control=0.0,
    )


def centre_variance(spread: NodeSpread, *, nodes: int, visits: float) -> float:
    """Return the variance of the median of the other nodes, each with so many earlier visits."""
    return _MEDIAN_COST * spread.variance(visits, 1) / (nodes - 1)


def node_comparison(
    spread: NodeSpread,
    difference: float,
    *,
    before: float,
    since: int,
    centre: float,
    tolerance: float,
) -> Comparison:
    """Return the comparison of a node's newest ``since`` visits with the ``before`` ones.

    ``difference`` is from what these let expect, and ``centre`` the variance of the others' median.
    """
    return Comparison(
        difference=difference,
        standard_error=math.sqrt(spread.variance(before, since) + centre),
        degrees_of_freedom=spread.degrees_of_freedom(before, since),
        tolerance=tolerance,
    )


def node_chance(comparison: Comparison, since: int) -> float:
    """Return the probability of visits as slow as these if the node did not change.

    One visit may be as far off as a session may. The median of three or more is not, unless most
    of them are: it follows Student's law.
    """
    if since < _LIGHT_TAIL or comparison.standard_error == 0:
        return comparison.chance
    score = comparison.difference / comparison.standard_error
    return float(special.stdtr(comparison.degrees_of_freedom, -score))


def node_bound(comparison: Comparison, since: int, level: float) -> float:
    """Return the smallest log ratio whose `node_chance` is ``level``."""
    quantile = upper_session if since < _LIGHT_TAIL else upper_t
    return quantile(comparison.degrees_of_freedom, level) * comparison.standard_error


def starts_of(visits: int) -> list[int]:
    """Return the numbers of newest visits that are tried as slow: 1, 3, 9 … and all.

    The median of an odd number withstands a launch in a slow mode.
    """
    return [*itertools.takewhile(lambda tried: tried < visits, _ODD), visits]


def _judge_node(
    node: str,
    visits: Sequence[float],
    spread: NodeSpread,
    tolerance: float,
    centre: float,
) -> NodeJudgement:
    """Return the judgement by the clearest start of its slowness, before the rate is divided.

    The chance is that of the clearest start, times the number of starts that are tried.
    """
    starts = starts_of(len(visits))
    tried = []
    for since in starts:
        before, slower = visits[:-since], statistics.median_low(visits[-since:])
        comparison = node_comparison(
            spread,
            slower - spread.expected(before),
            before=len(before),
            since=since,
            centre=centre,
            tolerance=tolerance,
        )
        enough = min(slower, visits[-1]) >= math.log1p(tolerance)
        tried.append((node_chance(comparison, since) if enough else 1.0, since, slower))
    chance, since, slower = min(tried)
    return NodeJudgement(
        node=node,
        offset=visits[-1],
        slower=slower,
        visits_since=_visits_since(visits, since, slower, spread),
        chance=min(1.0, len(starts) * chance),
        is_slow=False,
    )


def _of_median(visits: float) -> float:
    """Return the variance of a median of so many values, as a share of that of one."""
    return min(1.0, _MEDIAN_COST / visits)


def _median_without(ordered: Sequence[float], value: float) -> float:
    """Return the median of sorted values without one of them."""
    at = bisect.bisect_left(ordered, value)
    middle, odd = divmod(len(ordered) - 1, 2)
    return statistics.fmean(ordered[i + (i >= at)] for i in range(middle + odd - 1, middle + 1))


def _visits_since(visits: Sequence[float], since: int, slower: float, spread: NodeSpread) -> int:
    """Return the number of slow visits: those tried, and those before that lie as high.

    As high is nearer to the slow level than to what the visits before let expect.
    """
    while since < len(visits):
        before = visits[: -since - 1]
        if visits[-since - 1] < (slower + spread.expected(before)) / 2:
            break
        since += 1
    return since


def _launch_noise(session: NodeFigures) -> tuple[float, float]:
    """Return the launches' part of the variance of a node's level, and its degrees of freedom.

    Successive launches of a node differ by twice the variance of a launch.
    """
    logs = [np.log(figures).tolist() for figures in session.values()]
    moves = [abs(b - a) for one in logs for a, b in itertools.pairwise(one)]
    share = statistics.fmean(level_share(len(one)) for one in logs)
    return (sd_of_deviations(moves) ** 2 / 2 * share if moves else 0.0), robust_df(len(moves))
