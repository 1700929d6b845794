"""The plan of a session: the cases that its tests need, and the baselines that judge them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from ddp_perf.baselines.store import BaselineStore
from ddp_perf.core.baseline import Baseline
from ddp_perf.core.case import Case, Tier
from ddp_perf.core.metric import gated_metrics
from ddp_perf.duel.touched import Project
from ddp_perf.plugin.options import Options
from ddp_perf.plugin.progress import TerminalProgress
from ddp_perf.session.measure.nights import Night, night_length
from ddp_perf.session.measure.rounds import audit_length, further_length, session_length
from ddp_perf.system.capacity import Capacity


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a session: its options, its project, and the machine of its ranks."""

    options: Options
    root: Path
    suites: tuple[Path, ...]
    cases: tuple[Case, ...]  # all of the suites
    capacity: Capacity
    store: BaselineStore
    progress: TerminalProgress

    @property
    def project(self) -> Project:
        return Project(root=self.root, suites=self.suites, import_paths=self.options.import_paths)


class SessionPlan(msgspec.Struct, kw_only=True):
    """The cases of a session. Only `add` changes it: a running test may ask for another case."""

    by_suite: dict[str, list[Case]] = {}  # those that the selected tests need, in the files' order
    possible: tuple[Case, ...] = ()  # those, and what a running test may ask for
    night: Night | None = None  # None: every case gates
    baselines: dict[Tier, Baseline] = {}  # before the session

    @property
    def cases(self) -> list[Case]:
        return [case for row in self.by_suite.values() for case in row]

    @property
    def gating(self) -> list[Case]:
        """The cases that share the session's false-alarm rate."""
        return [case for case in self.possible if self.gates(case)]

    @property
    def gated(self) -> int:
        """The number of verdicts that share that rate."""
        return sum(len(gated_metrics(case)) for case in self.gating)

    def gates(self, case: Case) -> bool:
        """Return whether the times of a case may fail a test: not those of one that rotates."""
        return self.night is None or self.night.gates(case)

    def add(self, cases: Sequence[Case]) -> None:
        for case in cases:
            planned = self.by_suite.setdefault(case.suite, [])
            if case not in planned:
                planned.append(case)

    def read_baselines(self, setup: Setup) -> None:
        """Read the stored sessions that judge the cases. Raises BaselineError."""
        for suite in {case.suite for case in self.possible}:
            setup.store.work.structures(suite)
        keys = {case.tier: setup.capacity.accelerator_key(case.tier) for case in self.possible}
        self.baselines = {tier: setup.store.load(key) for tier, key in keys.items()}

    def length(self, options: Options) -> str:
        """Return how long the session takes; "" if the line of its one suite states it."""
        stored = self.baselines
        planned = [case for case in self.cases if case.tier in stored]  # others came while it ran
        audit_s = 0.0
        if options.audit:
            # Imported here: judging needs scipy, which collection can do without.
            from ddp_perf.session.gate_audit import is_auditable

            audited = list(filter(is_auditable, planned))
            audit_s = audit_length(audited, stored, settle_s=options.settle_s)
        known = any(case.id in stored[case.tier].cases for case in planned)
        further = further_length(options.settle_s if known else 0.0, audit_s)
        if self.night is not None and planned:
            return night_length(planned, stored, self.night) + further
        if len(self.by_suite) > 1 or audit_s:
            return session_length(planned, stored) + further
        return ""


def plan_session(
    setup: Setup, wanted: Sequence[Case], *, and_any: bool, night: Night | None
) -> SessionPlan:
    """Plan the wanted cases, as far as this machine can run them.

    ``and_any``: a running test may ask for each case of the suites.
    """
    ids = {case.key for case in wanted}
    fitting = [case for case in setup.cases if setup.capacity.obstacle(case) is None]
    possible = tuple(case for case in fitting if case.key in ids or and_any)
    plan = SessionPlan(possible=possible, night=night)
    plan.add([case for case in fitting if case.key in ids])
    return plan
