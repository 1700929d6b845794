"""Alike nodes that run one case: how far each is from the others, and from what it usually is.

The others of the same session show what the session and the code cost, so a node is seen by its
*offset*: the log of its level less the median of the others. It *usually* has the median of the
offsets of its earlier sessions. All centres are medians, and all spreads are by the median absolute
deviation: a few slow nodes, or sessions in a slow mode, move neither.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Mapping, Sequence

import msgspec

from ddp_perf.stats.robust import robust_df, robust_sd, sd_of_deviations
from ddp_perf.stats.rule.comparison import Comparison, Figures

NodeFigures = Mapping[str, Figures]  # of each node of a session, one figure for each launch
Offsets = Mapping[str, float]  # of each node of a session, its log ratio to the others, or to all

LEAST_NODES = 4  # fewer do not show which of them differs
_MEDIAN_COST = math.pi / 2  # n × the variance of a median ÷ that of a value
_LEAST_LAUNCHES = 3  # of a median that one of them does not move


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """The sd of logs that should be alike, and how well it is known."""

    sd: float
    degrees_of_freedom: float


class NodeJudgement(msgspec.Struct, frozen=True, kw_only=True):
    """One node of a session beside what shows it most clearly: the others, or its own sessions."""

    node: str
    offset: float  # log ratio to the others in this session
    usual: float  # what it is judged by: the offset of its sessions, or 0 for that of the others
    chance: float  # of any node of the session that is as slow, if all are healthy

    @property
    def slower(self) -> float:
        """The log ratio to what it is judged by."""
        return self.offset - self.usual


def judge_nodes(session: NodeFigures, earlier: Sequence[Offsets]) -> list[NodeJudgement]:
    """Judge each node of a session by the others and by its earlier sessions, the slowest first.

    ``earlier`` are the offsets of earlier sessions, the oldest first; nodes that one did not visit
    are missing in it. The chance is that of the clearer test of a node, times the number of all
    tests (Bonferroni).

    Raises ValueError if there are fewer than `LEAST_NODES` nodes, or a node has no launch.
    """
    if len(session) < LEAST_NODES:
        raise ValueError(f"{len(session)} nodes: at least {LEAST_NODES} show which one differs")
    usual = usual_offsets(earlier)
    logs = {node: log_level(figures) - usual.get(node, 0.0) for node, figures in session.items()}
    changes = _to_others(logs)
    offsets = {node: change + usual.get(node, 0.0) for node, change in changes.items()}
    nodes, visits = node_spread(offsets), visit_spread(earlier)
    found = []
    for node, offset in offsets.items():
        tests = [(_chance(offset, nodes), 0.0)]
        if node in usual and visits is not None:
            own = sum(node in one for one in earlier)
            error = math.sqrt(1 + _of_median(own) + _of_median(len(session) - 1))
            tests.append((_chance(changes[node] / error, visits), usual[node]))
        chance, by = min(tests)
        any_node = min(1.0, chance * len(tests) * len(session))
        found.append(NodeJudgement(node=node, offset=offset, usual=by, chance=any_node))
    return sorted(found, key=lambda one: -one.offset)


def log_level(figures: Figures) -> float:
    """Return the log of a node's level: a launch in a slow mode does not move that of three.

    It is the median of the launches' logs, or of fewer than three their mean. Raises ValueError if
    a figure is not positive, or there is none.
    """
    if not figures:
        raise ValueError("a node has no launch")
    centre = statistics.median if len(figures) >= _LEAST_LAUNCHES else statistics.fmean
    return centre([math.log(figure) for figure in figures])


def offsets_to_others(session: NodeFigures) -> dict[str, float]:
    """Return each node's log level less the median of the others.

    Raises ValueError without another node, or without a launch.
    """
    return _to_others({node: log_level(figures) for node, figures in session.items()})


def offsets_to_all(session: NodeFigures) -> dict[str, float]:
    """Return each node's log level less the median of all.

    The offsets to the others are further apart than the nodes: those of two are twice as far.
    Raises ValueError without a launch.
    """
    levels = {node: log_level(figures) for node, figures in session.items()}
    centre = statistics.median(levels.values())
    return {node: level - centre for node, level in levels.items()}


def usual_offsets(sessions: Sequence[Offsets]) -> dict[str, float]:
    """Return the median offset of each node over the sessions that visited it."""
    return {node: statistics.median(own) for node, own in _by_node(sessions).items()}


def node_spread(offsets: Offsets) -> Spread:
    """Return how far nodes are apart, by one offset of each."""
    return Spread(
        sd=robust_sd(list(offsets.values())), degrees_of_freedom=robust_df(len(offsets) - 1)
    )


def visit_spread(sessions: Sequence[Offsets]) -> Spread | None:
    """Return how far the offsets of one node are apart, or None if none was visited twice.

    Successive offsets of a node differ by twice the variance of one.
    """
    own = _by_node(sessions).values()
    moves = [abs(b - a) for offsets in own for a, b in itertools.pairwise(offsets)]
    if not moves:
        return None
    sd = sd_of_deviations(moves) / math.sqrt(2)
    return Spread(sd=sd, degrees_of_freedom=robust_df(len(moves)))


def _by_node(sessions: Sequence[Offsets]) -> dict[str, list[float]]:
    offsets: dict[str, list[float]] = {}
    for one in sessions:
        for node, offset in one.items():
            offsets.setdefault(node, []).append(offset)
    return offsets


def _to_others(logs: Mapping[str, float]) -> dict[str, float]:
    if len(logs) < 2:
        raise ValueError("at least two nodes are needed")
    return {
        node: log - statistics.median(logs[other] for other in logs if other != node)
        for node, log in logs.items()
    }


def _of_median(values: int) -> float:
    """Return the variance of a median of so many values, as a share of that of one."""
    return min(1.0, _MEDIAN_COST / values)


def _chance(difference: float, spread: Spread) -> float:
    return Comparison(
        difference=difference,
        standard_error=spread.sd,
        degrees_of_freedom=spread.degrees_of_freedom,
        tolerance=0.0,
    ).chance
