"""The result of one suite in one session: measurements, findings and what was stored."""

from __future__ import annotations

import msgspec

from ddp_perf.baselines.save import Refused, Saved, SaveMode
from ddp_perf.core.case import Tier
from ddp_perf.core.collective import CollectiveKind
from ddp_perf.core.environment import Environment
from ddp_perf.core.explanation import Explanation
from ddp_perf.core.gpu import GpuMachine
from ddp_perf.core.launch import LaunchResult
from ddp_perf.core.measurement import Finding, LaunchSummary, Measurement
from ddp_perf.core.metric import EXACT, NODES, STRUCTURE
from ddp_perf.core.outlier_host import OutlierHost
from ddp_perf.core.settled import Settled
from ddp_perf.core.verdict import Outcome
from ddp_perf.stats.cost import Cost
from ddp_perf.stats.link.model import Link
from ddp_perf.stats.link.values import LinkFit, LinkShift, Part
from ddp_perf.traces.values import TraceAnalysis


class LinkFinding(msgspec.Struct, frozen=True, kw_only=True):
    """The link that fits the undisturbed times of one collective over a number of ranks."""

    kind: CollectiveKind
    ranks: int
    nodes: int = 1  # with as many of the ranks on each: their links are never mixed
    env: dict[str, str]  # of the ranks: each value of a swept NCCL_ALGO is a link of its own
    fit: LinkFit | None  # None: the times do not determine latency and bandwidth
    baseline_date: str | None = None  # of the first session that it is compared with
    before: Link | None = None  # of the baseline
    shift: LinkShift | None = None  # since the baseline; None: nothing to compare with
    tolerance: float | None = None  # of the comparison
    slower: tuple[Part, ...] = ()  # by the tolerance, and than in each session of the baseline


class CaseProfile(msgspec.Struct, frozen=True, kw_only=True):
    """The steps of a case that ran under torch.profiler in a separate launch."""

    directory: str  # of rank0.json.gz, …, and of merged.json.gz with all ranks
    analysis: TraceAnalysis | None = None
    problem: str | None = None  # why there is no analysis


_INVALID_IN_A_ROW = 5  # sessions, this one among them
_FIRST_TIME = (Outcome.NO_BASELINE, Outcome.INCOMPARABLE)
FAILING = (Outcome.REGRESSION, Outcome.BAD_NODE, *_FIRST_TIME, Outcome.MISSES_TARGET)


def is_waiting(finding: Finding) -> bool:
    """Return whether the finding is undecided while how much sessions differ is assumed.

    No machine could decide it yet. The sessions before an accepted change count as well: they show
    how much sessions differ, and so do the machine's other cases.
    """
    verdict = finding.verdict
    return verdict.outcome is Outcome.UNDECIDED and verdict.assumed_sd is not None


def is_never_measured(finding: Finding) -> bool:
    """Return whether the finding is INVALID so often in a row that nothing gates the metric."""
    return (
        finding.verdict.outcome is Outcome.INVALID and finding.unmeasured + 1 >= _INVALID_IN_A_ROW
    )


def _is_undecided(finding: Finding) -> bool:
    if finding.metric in (*EXACT, NODES) or is_waiting(finding):
        return False
    return finding.verdict.outcome in (Outcome.UNDECIDED, Outcome.INVALID)


class SuiteResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one suite. It grows while the session measures, judges and saves."""

    suite: str
    tier: Tier
    date: str  # ISO 8601, UTC, when the suite began
    environment: Environment
    machine: GpuMachine | None = None  # every reading of the GPUs; None on the CPU tier
    baseline_path: str
    alpha: float  # false-alarm rate of each single verdict
    reported: tuple[str, ...] = ()  # ids of cases that rotate: their times gate nothing
    looks: dict[str, tuple[int, ...]] = {}  # by case id: the planned launches at each look
    injections: tuple[str, ...] = ()  # slowed the ranks on purpose: never a baseline
    measurements: dict[str, Measurement]  # by case id
    summaries: dict[str, tuple[LaunchSummary, ...]] = {}
    findings: tuple[Finding, ...] = ()
    costs: dict[str, Cost] = {}  # by case id, if the suite states a price
    links: tuple[LinkFinding, ...] = ()  # of a suite of collectives
    warnings: tuple[str, ...] = ()  # of slow links and unlike nodes, whatever the verdicts
    # None: the host fits its pool, or is of none. Written files have it as "misfit".
    outlier_host: OutlierHost | None = msgspec.field(default=None, name="misfit")
    nodes: tuple[str, ...] = ()  # that a launch could be sent to, by name; the first one was used
    # By case id, of cases that got slower on the first node: launches on another one.
    elsewhere: dict[str, Measurement] = {}
    explanations: dict[str, Explanation] = {}  # by case id, of the cases that got slower
    explaining: dict[str, tuple[LaunchResult, ...]] = {}  # further launches, never judged
    settled: dict[str, Settled] = {}  # by case id: what the second stage found
    unkept: str | None = None  # why the code of this session cannot run again, with the remedy
    profiles: dict[str, CaseProfile] = {}  # by case id
    command: str = ""  # the shell command that measured the session; "": it is never judged
    commands: dict[str, str] = {}  # case id → the shell command that measures it again
    # By the id of each case that a test requests: the metrics whose verdicts tests assert.
    asserted: dict[str, tuple[str, ...]] | None = None  # None: every verdict counts
    save_mode: SaveMode | None = None  # of --save-baseline; None: nothing was to be stored
    saved: dict[str, Saved] = {}  # by case id
    not_saved: dict[str, Refused] = {}  # by case id: asked for, and not stored
    saved_structures: dict[str, str] = {}  # by case id: the file that states the structure now

    @property
    def trains(self) -> bool:
        """True if the cases train, False if they call collectives."""
        return all(measurement.case.trains for measurement in self.measurements.values())

    def unjudged(self) -> SuiteResult:
        """Return the result as it was measured: no verdicts, and nothing that its session stored.

        Every verdict counts from then on, whether a test asserted it or not.
        """
        return msgspec.structs.replace(
            self,
            findings=(),
            links=(),
            outlier_host=None,
            explanations={},
            settled={},
            asserted=None,
            save_mode=None,
            saved={},
            not_saved={},
            saved_structures={},
        )

    def finding(self, case_id: str, metric: str) -> Finding | None:
        """Return the finding on a metric, or None if the metric is not gated or not measured."""
        for finding in self.findings:
            if finding.case_id == case_id and finding.metric == metric:
                return finding
        return None

    def gates(self, case_id: str) -> bool:
        """Return whether the times of a case may fail the session. Those of others are reported."""
        return case_id not in self.reported

    def is_requested(self, case_id: str) -> bool:
        """Return whether a test requests the case, and so fails if a launch of it failed."""
        return self.asserted is None or case_id in self.asserted

    def is_asserted(self, case_id: str, metric: str) -> bool:
        """Return whether a test asserts the verdict on a metric. Only such a verdict counts."""
        return self.asserted is None or metric in self.asserted.get(case_id, ())

    def asserted_findings(self) -> list[Finding]:
        """Return the findings that count."""
        return [found for found in self.findings if self.is_asserted(found.case_id, found.metric)]

    def undecided(self) -> list[str]:
        """Return the ids of the cases with a metric that this machine could not decide, sorted.

        A case that only waits for its first sessions does not count: no machine could decide it.
        Nor do a structure and a loss, which are the same on any machine, nor what no test asserts,
        nor the cases that rotate.
        """
        asserted = [found for found in self.asserted_findings() if self.gates(found.case_id)]
        return sorted(
            {
                found.case_id
                for found in asserted
                if _is_undecided(found) or self.needs_append(found)
            }
        )

    def needs_append(self, finding: Finding) -> bool:
        """Return whether it is SUSPECT and will be forgotten: only a further session decides it."""
        return finding.verdict.outcome is Outcome.SUSPECT and self.save_mode != "append"

    def is_refused(self, finding: Finding) -> bool:
        """Return whether this session of the metric was to be stored, and was refused."""
        if self.is_resolved(finding):
            return False
        return finding.case_id in self.not_saved or self._is_left_out(finding)

    def is_resolved(self, finding: Finding) -> bool:
        """Return whether --save-baseline resolved the finding by storing the session."""
        outcome = finding.verdict.outcome
        accepted = self.save_mode == "accept" and outcome in FAILING
        return self._is_stored(finding) and (accepted or outcome in _FIRST_TIME)

    def is_open(self, finding: Finding) -> bool:
        """Return whether the finding has no level to compare with, and could not be given one here.

        The machine was not quiet, or nobody announced the first session of the case. Neither tells
        anything of the code.
        """
        if finding.verdict.outcome not in _FIRST_TIME or self.save_mode == "accept":
            return False
        refused = self.not_saved.get(finding.case_id)
        whole = refused is not None and refused.is_open
        return (whole and not self._is_stored(finding)) or self._is_left_out(finding)

    def is_not_accepted(self, finding: Finding) -> bool:
        """Return whether the session was to begin a new level, and was refused.

        The structure is accepted even if the times are refused.
        """
        refused = self.save_mode == "accept" and finding.case_id in self.not_saved
        return refused and finding.metric != STRUCTURE and finding.target is None

    def _is_stored(self, finding: Finding) -> bool:
        if finding.target is not None or finding.verdict.outcome is Outcome.BAD_NODE:
            return False  # a baseline does not change it
        if finding.metric == STRUCTURE and finding.case_id in self.saved_structures:
            return True
        if finding.metric == STRUCTURE and self.save_mode != "accept":  # which stores the FLOPs
            return False
        return finding.case_id in self.saved and not self._is_left_out(finding)

    def _is_left_out(self, finding: Finding) -> bool:
        saved = self.saved.get(finding.case_id)
        return saved is not None and finding.metric in saved.without
