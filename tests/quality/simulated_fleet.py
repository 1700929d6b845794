"""A simulated fleet whose nodes are sampled, and judged together with the code every night."""

from __future__ import annotations

import datetime
import math
from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec
import numpy as np

from ddp_perf.baselines.thin import INFORMING
from ddp_perf.core.case import Tolerances
from ddp_perf.core.measurement import Measurement
from ddp_perf.core.metric import STEP_TIME
from ddp_perf.core.session import Session
from ddp_perf.core.verdict import Outcome, Verdict
from ddp_perf.plan.fleet_file import FleetCase
from ddp_perf.plan.noise import Noise
from ddp_perf.plan.schedule import FleetPlan, FoundCode
from ddp_perf.session.gate.node_verdict import judge_nodes_of, slow_since
from ddp_perf.session.gate.over_nodes import OverNodes
from ddp_perf.stats import judge_launches
from ddp_perf.stats.robust import Floats
from ddp_perf.stats.rule.suspicion import sessions_to_confirm
from tests.builders import make_case, make_case_baseline, make_environment

Law = Literal["normal", "t3", "slow launches"]
_ENVIRONMENT = make_environment()
SLOW_SHARE, SLOW_BY = 0.01, 0.2  # of the launches in a slow mode


class Gate:
    """The verdicts on the code, session after session, with those that are suspect in a row."""

    def __init__(self, *, tolerance: float, alpha: float) -> None:
        self._tolerance, self._alpha = tolerance, alpha
        self._stored: list[list[float]] = []
        self._row = 0

    def store(self, figures: list[float]) -> None:
        self._stored.append(figures)

    def is_red(self, figures: list[float]) -> bool:
        """Judge a session, and store it unless it was slower."""
        verdict: Verdict = judge_launches(
            [[figure] for figure in figures],
            [[[figure] for figure in session] for session in self._stored],
            tolerance=self._tolerance,
            alpha=self._alpha,
            reference=5,
        )
        is_suspect = verdict.outcome is Outcome.SUSPECT
        self._row = self._row + 1 if is_suspect else 0
        in_row = is_suspect and sessions_to_confirm(verdict.chance or 0.0, self._alpha) <= self._row
        if verdict.outcome in (Outcome.PASS, Outcome.UNDECIDED):
            self._stored.append(figures)
        return in_row or verdict.outcome is Outcome.REGRESSION


class Night(msgspec.Struct, frozen=True, kw_only=True):
    """What one night reports."""

    code_is_red: bool
    bad_nodes: frozenset[str]


class SimulatedFleet:
    """The nodes, and the nights that a plan gives them for its first case of one node."""

    def __init__(self, plan: FleetPlan, *, seed: int, law: Law = "normal") -> None:
        self._plan, self._law = plan, law
        self._random = np.random.default_rng(seed)
        self.case: FleetCase = next(case for case in plan.file.cases if 1 in case.nodes)
        self._gated = make_case(tolerances=Tolerances(step_time=self.case.tolerance))
        self._noise: Noise = plan.noises[self.case.name]
        nodes = plan.file.fleet.nodes
        self.offsets: Floats = self._random.normal(0, self._noise.node, nodes)
        self._order = self._random.permutation(nodes)
        self._night = 0
        self._stored: list[Session] = []
        self._again: list[int] = []  # nodes that were slow on the night before
        each, *_ = plan.sessions
        self._gate = Gate(tolerance=self.case.tolerance, alpha=each.alpha)
        self._rate = each.false_alarm_rate

    def run_in(self) -> None:
        """Fill the history of the nodes, and the baseline of the code, where nothing changed."""
        for _ in range(INFORMING):
            figures = self._measured(self._sampled(), 0.0, {})
            session = self._session(figures)
            self._gate.store(self._code_figures(session))
            self._stored.append(session)

    def night(self, *, slower: float = 0.0, slow_nodes: Mapping[int, float] | None = None) -> Night:
        """Measure and judge one night."""
        figures = self._measured(self._sampled(), slower, slow_nodes or {})
        session = self._session(figures)
        finding = judge_nodes_of(
            Measurement(case=self._gated, launches=(), failures=(), nodes=tuple(figures)),
            session,
            make_case_baseline(self._gated, *self._stored),
            rate=self._rate,
        )
        assert finding is not None
        slow = slow_since(finding, session.date)
        self._again = [int(node) for node in slow]
        session = msgspec.structs.replace(session, slow_nodes=slow)
        red = self._gate.is_red(self._code_figures(session))
        self._stored = self._kept([*self._stored, session])
        bad = frozenset(one.node for one in finding.nodes if one.is_slow and not one.is_suspect)
        return Night(code_is_red=red, bad_nodes=bad)

    def across(self, found: FoundCode, slower: float, *, sessions: int) -> int:
        """Return the session that finds slower code on several nodes; ``sessions`` + 1 if none.

        A step takes as long as on the slowest node. All sessions are on the same nodes.
        """
        gate = Gate(tolerance=self.case.tolerance, alpha=self._plan.sessions[-1].alpha)
        nodes = self._random.choice(len(self.offsets), found.nodes, replace=False)
        for _ in range(INFORMING):
            gate.store(self._launches_across(nodes, found.launches, 0.0))
        for session in range(1, sessions + 1):
            if gate.is_red(self._launches_across(nodes, found.launches, slower)):
                return session
        return sessions + 1

    def _launches_across(self, nodes: Sequence[int], launches: int, slower: float) -> list[float]:
        noise, level = self._noise, math.log1p(slower) + self._noise.session * self._draw(1)[0]
        slowest = (self.offsets[nodes] + noise.visit * self._draw(len(nodes))).max()
        logs = level + slowest + self._random.normal(0, noise.launch, launches)
        return np.exp(logs).tolist()

    def _sampled(self) -> list[int]:
        """Return the nodes of this night: the next ones in a fixed order, and the slow ones."""
        nodes, sample = len(self._order), self._plan.sample
        first = self._night % sample.every * sample.nodes
        self._night += 1
        turn = [int(self._order[i % nodes]) for i in range(first, first + sample.nodes)]
        return list(dict.fromkeys([*turn, *self._again]))

    def _measured(
        self, nodes: list[int], slower: float, slow_nodes: Mapping[int, float]
    ) -> dict[str, list[float]]:
        noise, launches = self._noise, self._plan.sample.launches
        level = math.log1p(slower) + noise.session * self._draw(1)[0]
        visits = level + self.offsets[nodes] + noise.visit * self._draw(len(nodes))
        visits += [math.log1p(slow_nodes.get(node, 0.0)) for node in nodes]
        logs = visits[:, None] + self._random.normal(0, noise.launch, (len(nodes), launches))
        if self._law == "slow launches":
            logs += math.log1p(SLOW_BY) * (self._random.random(logs.shape) < SLOW_SHARE)
        return {str(node): own for node, own in zip(nodes, np.exp(logs).tolist(), strict=True)}

    def _session(self, figures: dict[str, list[float]]) -> Session:
        """Return the session as the baseline stores it, a day after the one before."""
        date = datetime.datetime(2026, 1, 1) + datetime.timedelta(days=self._night)
        return Session(
            date=date.isoformat() + "+00:00",
            environment=_ENVIRONMENT,
            launches=tuple({STEP_TIME.name: one} for own in figures.values() for one in own),
            overhead_s=1.0,
            nodes=tuple(node for node, own in figures.items() for _ in own),
        )

    def _kept(self, sessions: list[Session]) -> list[Session]:
        """Return the newest sessions, and the newest of each node that is slow."""
        newest = {node: session for session in sessions for node in session.nodes}
        marked = [one for node, one in newest.items() if node in one.slow_nodes]
        return [one for one in sessions if one in marked or one in sessions[-INFORMING:]]

    def _code_figures(self, session: Session) -> list[float]:
        """Return the figures of the healthy nodes, less what the stored sessions show of them."""
        taken = OverNodes((*self._stored, session)).taken()[-1]
        return taken.values(STEP_TIME.name)

    def _draw(self, count: int) -> Floats:
        if self._law == "t3":
            return self._random.standard_t(3, count) / math.sqrt(3)
        return self._random.normal(size=count)
