"""The nodes of a case: which one computes longer, and which link the ranks wait for.

Both come from seconds that each rank measured by its own clock: clocks of nodes are not compared.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence

import msgspec

from ddp_perf.core.case import Case
from ddp_perf.core.launch import LaunchResult
from ddp_perf.core.measurement import LaunchSummary, Measurement
from ddp_perf.core.scaling_key import RANKS, work_without
from ddp_perf.render.units import counted
from ddp_perf.stats.interval import CONFIDENCE, Estimate, mean_estimate
from ddp_perf.stats.rule.comparison import upper_t

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
    margin = upper_t(len(logs) - 1, tail) * statistics.stdev(logs) / math.sqrt(len(logs))
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
