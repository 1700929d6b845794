"""The visits of a node that show it as it is: those since it was mended, replaced, or became slow.

A node that is faster or slower than its earlier visits let expect is no evidence about the code. If
its next visit agrees, the node has changed, and its earlier visits do not count from then on.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import msgspec

from ddp_perf.stats.fleet import NodeSpread, Offsets
from ddp_perf.stats.rule.comparison import upper_t

_LEVEL = 0.005  # on each side: chance that the visit of an unchanged node is left out
_LEAST = 0.005  # log ratio: a smaller change of one node hardly moves the mean of several


class NodeState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a node in one session, as all sessions show it."""

    visits: tuple[float, ...]  # all offsets of the node in that state, of later sessions, too
    has_left: bool  # its offset is not as the visits let expect


def node_states(sessions: Sequence[Offsets], spread: NodeSpread) -> list[dict[str, NodeState]]:
    """Return the state of each node in each session, the oldest first."""
    states: list[dict[str, NodeState]] = [{} for _ in sessions]
    for node in dict.fromkeys(node for one in sessions for node in one):
        visited = {place: one[node] for place, one in enumerate(sessions) if node in one}
        for place, state in _of_node(visited, spread).items():
            states[place][node] = state
    return states


def _of_node(visited: Mapping[int, float], spread: NodeSpread) -> dict[int, NodeState]:
    """Return the state of a node in each session that visited it, by the place of the session."""
    own: list[list[float]] = [[]]  # the visits of each state
    number: dict[int, int] = {}  # of the state in each session
    left: set[int] = set()
    before: tuple[float, bool] | None = None  # the visit before and its side, if it had left
    for place, offset in visited.items():
        if not _has_left(offset, own[-1], spread):
            own[-1].append(offset)
            before = None
        else:
            above = offset > spread.expected(own[-1])
            if before is not None and before[1] == above:
                own.append([before[0], offset])
                before = None
            else:
                left.add(place)
                before = offset, above
        number[place] = len(own) - 1
    return {
        place: NodeState(visits=tuple(own[state]), has_left=place in left)
        for place, state in number.items()
    }


def _has_left(offset: float, before: Sequence[float], spread: NodeSpread) -> bool:
    """Return whether an offset is farther from the expected one than chance explains."""
    freedom = spread.degrees_of_freedom(len(before), 1)
    bound = upper_t(freedom, _LEVEL) * math.sqrt(spread.variance(len(before), 1))
    return abs(offset - spread.expected(before)) > max(bound, _LEAST)
