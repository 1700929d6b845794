"""What a session measured of one suite, and what it concluded."""

from __future__ import annotations

import msgspec

from ddp_perf.baselines.save import Refused, Saved, SaveMode
from ddp_perf.core.baseline import LEAST_SESSIONS
from ddp_perf.core.case import Tier
from ddp_perf.core.collective import CollectiveKind
from ddp_perf.core.environment import Environment
from ddp_perf.core.explanation import Explanation
from ddp_perf.core.gpu import GpuMachine
from ddp_perf.core.launch import LaunchResult
from ddp_perf.core.measurement import Finding, LaunchSummary, Measurement
from ddp_perf.core.verdict import Outcome
from ddp_perf.stats.cost import Cost
from ddp_perf.stats.link.values import LinkFit, LinkShift, Part
from ddp_perf.traces.values import TraceAnalysis


class LinkFinding(msgspec.Struct, frozen=True, kw_only=True):
    """One collective over so many ranks: the link that its undisturbed times fit."""

    kind: CollectiveKind
    ranks: int
    env: dict[str, str]  # of the ranks: a swept NCCL_ALGO makes links of its own
    fit: LinkFit | None  # None: the times do not tell a latency and a bandwidth
    baseline_date: str | None = None  # of the first session that it is compared with
    shift: LinkShift | None = None  # since the baseline; None: nothing to compare with
    slower: tuple[Part, ...] = ()  # significantly, and by the suite's tolerance at least


class CaseProfile(msgspec.Struct, frozen=True, kw_only=True):
    """Some steps of a case under torch.profiler, in a launch of their own."""

    directory: str  # of rank0.json.gz, …, and of merged.json.gz with all ranks
    analysis: TraceAnalysis | None = None
    problem: str | None = None  # why there is none


_FIRST_TIME = (Outcome.NO_BASELINE, Outcome.INCOMPARABLE, Outcome.BELOW_PUBLISHED)
FAILING = (Outcome.REGRESSION, *_FIRST_TIME)


class SuiteResult(msgspec.Struct, frozen=True, kw_only=True):
    """Grows from measured to judged to saved; the results file holds it as it is."""

    suite: str
    tier: Tier
    date: str  # ISO 8601, UTC, when the suite began
    environment: Environment
    machine: GpuMachine | None = None  # every reading of the GPUs; None on the CPU tier
    baseline_path: str
    alpha: float  # false-alarm rate of each single verdict
    injections: tuple[str, ...] = ()  # what slowed the ranks on purpose: never a baseline
    measurements: dict[str, Measurement]  # by case id
    summaries: dict[str, tuple[LaunchSummary, ...]] = {}
    findings: tuple[Finding, ...] = ()
    costs: dict[str, Cost] = {}  # by case id, where the suite states a price
    links: tuple[LinkFinding, ...] = ()  # of a suite of collectives
    explanations: dict[str, Explanation] = {}  # by case id: why it got slower
    explaining: dict[str, tuple[LaunchResult, ...]] = {}  # launches for that alone, never judged
    profiles: dict[str, CaseProfile] = {}  # by case id
    commands: dict[str, str] = {}  # case id → the shell command that measures it again
    save_mode: SaveMode | None = None  # of --save-baseline; None: nothing was to be stored
    saved: dict[str, Saved] = {}  # by case id
    not_saved: dict[str, Refused] = {}  # by case id: asked for, and not stored

    @property
    def trains(self) -> bool:
        """A suite either trains or calls collectives: all of its cases have the same figures."""
        return all(measurement.case.trains for measurement in self.measurements.values())

    def finding(self, case_id: str, metric: str) -> Finding | None:
        """None when the case has no such gated metric, or was not measured whole."""
        for finding in self.findings:
            if finding.case_id == case_id and finding.metric == metric:
                return finding
        return None

    def undecided(self) -> list[str]:
        """Ids of the cases with a metric that this machine could not decide.

        One that only waits for its first sessions is none: no machine could.
        """
        return sorted({found.case_id for found in self.findings if self._is_undecided(found)})

    def _is_undecided(self, finding: Finding) -> bool:
        outcome = finding.verdict.outcome
        if outcome is Outcome.INCONCLUSIVE:
            return finding.sessions >= LEAST_SESSIONS
        return outcome is Outcome.INVALID or (
            outcome is Outcome.NO_BASELINE and self.is_refused(finding)
        )

    def is_refused(self, finding: Finding) -> bool:
        """Whether this session was to be stored, and is not fit for it."""
        return finding.case_id in self.not_saved

    def is_settled(self, finding: Finding) -> bool:
        """Whether --save-baseline answered what would fail: recorded, or knowingly replaced."""
        outcome = finding.verdict.outcome
        accepted = self.save_mode == "accept" and outcome in FAILING
        return finding.case_id in self.saved and (accepted or outcome in _FIRST_TIME)
