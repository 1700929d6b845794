"""Sessions of alike nodes as the rule takes them: over all nodes, each in the place of a launch.

The figure of a node is its level, less what it usually has beside the others in all sessions: so
another sample of nodes does not look like another code. Nodes that were slower than the others, or
not as usual (mended, replaced under the same name, slow for the first time), are left out: they are
no evidence of the code.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from ddp_perf.core.baseline import Baseline, CaseBaseline
from ddp_perf.core.session import Session
from ddp_perf.stats.alike_nodes import (
    NodeFigures,
    Offsets,
    log_level,
    node_spread,
    offsets_to_all,
    usual_offsets,
    visit_spread,
)
from ddp_perf.stats.rule.comparison import upper_t
from ddp_perf.stats.rule.variance_components import NOT_SAMPLED, Sampling

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
