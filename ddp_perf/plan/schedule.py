"""The choice of a schedule: which sample of nodes, which world sizes, how many launches.

The cheapest sample of nodes that reaches both aims comes first, then each number of nodes, the
fewest first: every night if that reaches the aim and fits, else every week. What does not fit is
stated with what it would take.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import msgspec

from ddp_perf.baselines.thin import INFORMING
from ddp_perf.plan.fleet_file import MOST_NIGHTS, FleetCase, FleetFile
from ddp_perf.plan.noise import Noise, noise_of
from ddp_perf.plan.power import CodePower, NodePower, night_of, smallest_found
from ddp_perf.stats.fleet import (
    LEAST_NODES,
    TOLERANCE_SHARE,
    NodeSpread,
    code_errors,
    level_share,
    robust_df,
)
from ddp_perf.stats.rule.alpha_spending import alpha_per_metric

MONTH = 30  # nights
_LAUNCHES = (1, 2, 3, 4, 5, 8)  # of a node that is visited
_ACROSS = (3, 4, 5, 6, 8, 10, 12, 16, 20, 24)  # launches across nodes, all of the same nodes
WEEK = 7
_HALF = 0.5


class FoundCode(msgspec.Struct, frozen=True, kw_only=True):
    """The power of the verdict on the code, in one case on a number of nodes."""

    case: str
    nodes: int  # of one launch
    figures: int  # of a session: one for each node of the sample, or launch over several nodes
    launches: int  # of each figure
    every: int  # nights
    gpu_minutes: float  # of one session
    smallest: float  # minimum detectable effect of one session (power 90 %)
    within: float  # probability to find the aim in its nights
    half_night: int | None  # by which half of such changes are found
    most_night: int | None  # by which the asked share is found


class FoundNode(msgspec.Struct, frozen=True, kw_only=True):
    """The power of the verdict on each node, by its best case."""

    case: str
    within: float  # probability to find the aim in its nights
    half_night: int | None
    most_night: int | None
    at_once: float | None = (
        None  # smallest slow-down that two visits find, at the asked probability
    )
    in_time: float | None = None  # smallest one that is found in the nights of the aim


class NodeSample(msgspec.Struct, frozen=True, kw_only=True):
    """The nodes that run every case of one node in a night, and what that finds."""

    nodes: int
    every: int  # nights from visit to visit of a node
    launches: int  # of each case on each node
    gpu_minutes: float  # of a night, without those of slow nodes
    code: tuple[FoundCode, ...]
    node: FoundNode
    reaches: bool  # both aims


class NightlySession(msgspec.Struct, frozen=True, kw_only=True):
    """One of the sessions of a night: each_node skips cases of several nodes."""

    each_node: bool
    verdicts: int  # on the code, with those of every case
    false_alarm_rate: float  # of the code, and with each_node once more of the nodes

    @property
    def alpha(self) -> float:
        """The false-alarm rate of each verdict."""
        return alpha_per_metric(self.false_alarm_rate, self.verdicts)


class FleetPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The recommended schedule, what it costs and finds, and what it does not reach."""

    file: FleetFile
    noises: dict[str, Noise]  # by case
    sessions: tuple[NightlySession, ...]
    sample: NodeSample
    across: tuple[FoundCode, ...]  # cases on several nodes
    missed: tuple[str, ...]  # what is not reached, with what it would take

    @property
    def gpu_minutes(self) -> float:
        """GPU-minutes of a night, on average."""
        across = sum(found.gpu_minutes / found.every for found in self.across)
        return self.sample.gpu_minutes + across

    @property
    def share(self) -> float:
        """The share of the fleet's time."""
        return self.gpu_minutes / (self.file.fleet.gpus * 24 * 60)

    @property
    def cost(self) -> float | None:
        """The cost of a night, on average; None without a price."""
        price = self.file.fleet.price_per_gpu_hour
        return None if price is None else price * self.gpu_minutes / 60


class Planner:
    """The models of one fleet, and the search for its schedule."""

    def __init__(self, file: FleetFile) -> None:
        self.file = file
        self.noises = {case.name: noise_of(case) for case in file.cases}
        self.of_one_node = [case for case in file.cases if 1 in case.nodes]
        self.sessions = _sessions(file)

    def plan(self) -> FleetPlan:
        """Return the schedule for the budget."""
        budget = self.file.fleet.gpu_minutes_per_night
        sample, missed = self._sample(budget)
        sample = msgspec.structs.replace(sample, node=self._with_smallest(sample))
        left, across = budget - sample.gpu_minutes, []
        for case, nodes in self._sizes():
            found, why = self._across(case, nodes, left)
            missed += why
            if found is not None:
                left -= found.gpu_minutes / found.every
                across.append(found)
        return FleetPlan(
            file=self.file,
            noises=self.noises,
            sessions=self.sessions,
            sample=sample,
            across=tuple(across),
            missed=tuple(missed),
        )

    def _sizes(self) -> list[tuple[FleetCase, int]]:
        """Return the cases on several nodes, the cheapest first."""
        sizes = [(case, nodes) for case in self.file.cases for nodes in case.nodes if nodes > 1]
        return sorted(sizes, key=lambda one: one[0].launch_s * one[1])

    # ---- one node ----

    def _sample(self, budget: float) -> tuple[NodeSample, list[str]]:
        """Return the cheapest sample that reaches both aims; else the best that can be paid."""
        costs = sorted((self.cost_of_sample(one[0], one[2]), *one) for one in self._samples())
        best, asked = None, self.file.find.probability
        for cost, nodes, every, launches in costs:
            node = self._best_node(nodes, every, launches)
            if best is not None and node.within < asked and node.within <= _merit(best):
                continue  # whatever it finds of the code: that takes longer to compute
            sample = self.sample(nodes, every, launches)
            if sample.reaches and cost <= budget:
                return sample, []
            if cost <= budget or best is None:
                best = max(best, sample, key=_merit) if best else sample
            elif sample.reaches:
                return best, [
                    f"one node: both aims need {cost:,.0f} GPU-minutes a night: {nodes} nodes of"
                    f" {launches} launches"
                ]
        assert best is not None
        return best, [self._why_never()]

    def _samples(self) -> Iterator[tuple[int, int, int]]:
        """Yield nodes, nights from visit to visit, and launches."""
        fleet = self.file.fleet.nodes
        for every in range(1, MOST_NIGHTS + 1):
            nodes = math.ceil(fleet / every)
            if nodes < LEAST_NODES:
                return
            for launches in _LAUNCHES:
                yield nodes, every, launches

    def cost_of_sample(self, nodes: int, launches: int) -> float:
        """Return the GPU-minutes of a night, without those of slow nodes."""
        seconds = sum(case.launch_s for case in self.of_one_node) * launches
        return nodes * self.file.fleet.gpus_per_node * seconds / 60

    def sample(self, nodes: int, every: int, launches: int) -> NodeSample:
        """Return what a sample of nodes finds."""
        code = tuple(
            self._found_code(case, 1, nodes, launches, 1, self.spread(case, nodes, every, launches))
            for case in self.of_one_node
        )
        node = self._best_node(nodes, every, launches)
        asked = self.file.find.probability
        return NodeSample(
            nodes=nodes,
            every=every,
            launches=launches,
            gpu_minutes=self.cost_of_sample(nodes, launches),
            code=code,
            node=node,
            reaches=node.within >= asked and all(found.within >= asked for found in code),
        )

    def _best_node(self, nodes: int, every: int, launches: int) -> FoundNode:
        """Return what the case that finds most finds of a node."""
        found = (self._found_node(case, nodes, every, launches) for case in self.of_one_node)
        return max(found, key=lambda one: one.within)

    def spread(self, case: FleetCase, nodes: int, every: int, launches: int) -> NodeSpread:
        """Return the spread of nodes, as the sessions that the baseline keeps show it.

        If they have no node twice, they cannot separate what a node costs for good.
        """
        noise = self.noises[case.name]
        visited = min(self.file.fleet.nodes, nodes * INFORMING)
        moves = nodes * INFORMING - visited
        visit = noise.of_visit(launches)
        of_launches = noise.launch**2 * level_share(launches) if launches > 1 else 0.0
        seen = visit if moves else of_launches
        return NodeSpread(
            node=noise.node**2 + visit - seen,
            visit=seen,
            node_df=robust_df(visited - 1),
            visit_df=robust_df(moves or nodes * (launches - 1)),
        )

    def node_power(self, case: FleetCase, nodes: int, every: int, launches: int) -> NodePower:
        """Return the power of the verdict on each node of a sample."""
        return NodePower(
            spread=self.spread(case, nodes, every, launches),
            visits=INFORMING // every,
            nodes=nodes,
            every=every,
            verdicts=nodes * len(self.of_one_node),
            rate=self.sessions[0].false_alarm_rate,
            tolerance=TOLERANCE_SHARE * case.tolerance,
        )

    def _found_node(self, case: FleetCase, nodes: int, every: int, launches: int) -> FoundNode:
        aim, asked = self.file.find.node, self.file.find.probability
        found = self.node_power(case, nodes, every, launches).found(aim.slower)
        return FoundNode(
            case=case.name,
            within=float(found[aim.nights - 1]),
            half_night=night_of(found, _HALF),
            most_night=night_of(found, asked),
        )

    def _with_smallest(self, sample: NodeSample) -> FoundNode:
        """Return what a sample finds of a node, with the smallest slow-downs."""
        case = next(case for case in self.of_one_node if case.name == sample.node.case)
        power = self.node_power(case, sample.nodes, sample.every, sample.launches)
        asked, nights = self.file.find.probability, self.file.find.node.nights
        return msgspec.structs.replace(
            sample.node,
            at_once=smallest_found(power, by=sample.every + 1, share=asked),
            in_time=smallest_found(power, by=nights, share=asked),
        )

    def _why_never(self) -> str:
        """Return what limits a fleet in which no sample reaches both aims."""
        most = self.sample(self.file.fleet.nodes, 1, _LAUNCHES[-1])
        least = max(found.smallest for found in most.code)
        in_time = self._with_smallest(most).in_time
        node = "nothing" if in_time is None else f"{in_time:.1%}"
        return (
            f"one node: no sample reaches both aims; all {most.nodes} nodes every night, of"
            f" {most.launches} launches, find {least:.1%} of the code in one night, and {node} of a"
            " node in its nights: the noise of sessions, nodes and visits is the limit"
        )

    # ---- several nodes ----

    def _across(
        self, case: FleetCase, nodes: int, left: float
    ) -> tuple[FoundCode | None, list[str]]:
        """Return the schedule of a case on several nodes, and what it does not reach."""
        name, asked = f"{case.name} on {nodes} nodes", self.file.find.probability
        nightly = [self.across(case, nodes, launches, 1) for launches in _ACROSS]
        enough = next((found for found in nightly if found.within >= asked), None)
        if enough is not None and enough.gpu_minutes <= left:
            return enough, []
        needs = (
            f"{name}: the aim for the code needs {enough.gpu_minutes:,.0f} GPU-minutes a night:"
            f" {enough.figures} launches"
            if enough is not None
            else f"{name}: not even {_ACROSS[-1]} launches a night reach the aim for the code"
        )
        weekly = [self.across(case, nodes, launches, WEEK) for launches in _ACROSS]
        paid = [found for found in weekly if found.gpu_minutes / WEEK <= left]
        if not paid:
            return None, [f"{needs}; not measured, not even every week"]
        reaching = (found for found in paid if found.smallest <= self.file.find.code.slower)
        return next(reaching, paid[-1]), [f"{needs}; measured every week"]

    def across(self, case: FleetCase, nodes: int, launches: int, every: int) -> FoundCode:
        """Return what so many launches find, all on the nodes of every earlier session."""
        return self._found_code(case, nodes, launches, 1, every, None)

    def code_power(self, case: FleetCase, spread: NodeSpread | None, figures: int) -> CodePower:
        """Return the power of the verdict on the code, by a sample of nodes.

        None: by launches over several nodes. As these are the same in every session, what they cost
        for good cancels; their visits do not, and are taken to be as those of one node.
        """
        noise, across = self.noises[case.name], spread is None
        freedom = figures * INFORMING
        of_launches = NodeSpread(node=0.0, visit=noise.launch**2, node_df=1.0, visit_df=freedom)
        errors = code_errors(
            spread or of_launches,
            session=noise.session**2 + (noise.visit**2 if across else 0.0),
            nodes=figures,
            visits=0,  # those of other nights differ, and what is known of their nodes is little
            sessions=INFORMING,
        )
        session = self.sessions[-1 if across else 0]
        return CodePower(errors=errors, tolerance=case.tolerance, alpha=session.alpha)

    def _found_code(
        self,
        case: FleetCase,
        nodes: int,
        figures: int,
        launches: int,
        every: int,
        spread: NodeSpread | None,
    ) -> FoundCode:
        power = self.code_power(case, spread, figures)
        aim, asked = self.file.find.code, self.file.find.probability
        found = power.found(aim.slower)
        sessions = aim.nights // every
        half, most = (night_of(found, share) for share in (_HALF, asked))
        seconds = case.launch_s * nodes * figures * launches
        return FoundCode(
            case=case.name,
            nodes=nodes,
            figures=figures,
            launches=launches,
            every=every,
            gpu_minutes=seconds * self.file.fleet.gpus_per_node / 60,
            smallest=power.smallest,
            within=float(found[sessions - 1]) if sessions else 0.0,
            half_night=half and half * every,
            most_night=most and most * every,
        )


def _sessions(file: FleetFile) -> tuple[NightlySession, ...]:
    """Return the sessions of a night, which share the accepted false alarms of the code.

    The gate has one rate for the code and for the nodes of a session.
    """
    one, across = (
        sum(
            case.metrics * sum((nodes > 1) is several for nodes in case.nodes)
            for case in file.cases
        )
        for several in (False, True)
    )
    accepted = file.false_alarms_per_month
    of_code = accepted.code / MONTH / (2 if across else 1)
    of_each = min(of_code, accepted.node / MONTH)
    each = NightlySession(each_node=True, verdicts=one, false_alarm_rate=of_each)
    if not across:
        return (each,)
    return each, NightlySession(each_node=False, verdicts=across, false_alarm_rate=of_code)


def _merit(sample: NodeSample) -> float:
    """Return how likely the less likely of the aims is."""
    return min(sample.node.within, *(found.within for found in sample.code))
