"""The result of a suite in a session, its conclusion, and the results file (``--ddp-json``)."""

from __future__ import annotations

import contextlib
import datetime
import enum
import math
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ddp_perf.baselines.save import Refused, Saved, SaveMode
from ddp_perf.core.case import Tier
from ddp_perf.core.environment import Environment, OutlierHost
from ddp_perf.core.gpu import GpuMachine
from ddp_perf.core.launch import LaunchResult
from ddp_perf.core.measurement import Finding, LaunchSummary, Measurement
from ddp_perf.core.metric import EXACT, NODES, STEP_TIME, STRUCTURE
from ddp_perf.core.subject import CollectiveKind
from ddp_perf.core.verdict import Explanation, Outcome, Settled
from ddp_perf.errors import ExitCode, ResultsError
from ddp_perf.stats.hardware import Cost
from ddp_perf.stats.link import Link, LinkFit, LinkShift, Part
from ddp_perf.system.files import VersionedJson, replace_file
from ddp_perf.traces.chrome import TraceAnalysis

# The result of one suite in one session: measurements, findings and what was stored.


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
    outlier_host: OutlierHost | None = None  # None: the host fits its pool, or is of none
    nodes: tuple[str, ...] = ()  # that a launch could be sent to, by name; the first one was used
    # By case id, of cases that got slower on the first node: launches on another one.
    elsewhere: dict[str, Measurement] = {}
    explanations: dict[str, Explanation] = {}  # by case id, of the cases that got slower
    explaining: dict[str, tuple[LaunchResult, ...]] = {}  # further launches, never judged
    settled: dict[str, Settled] = {}  # by case id: what the second stage found
    unkept: str | None = None  # why the code of this session cannot run again, with the remedy
    profiles: dict[str, CaseProfile] = {}  # by case id
    job: str = ""  # address of the CI job that measured it; empty: none did
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
        accepted = self.save_mode == "accept" and outcome.fails
        return self._is_stored(finding) and (accepted or not outcome.is_compared)

    def is_open(self, finding: Finding) -> bool:
        """Return whether the finding has no level to compare with, and could not be given one here.

        The machine was not quiet, or nobody announced the first session of the case. Neither tells
        anything of the code.
        """
        if finding.verdict.outcome.is_compared or self.save_mode == "accept":
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


# The results file (``--ddp-json``): all measurements and verdicts, with a schema version.


SCHEMA_VERSION = 1
_REMEDY = "write it anew with pytest --ddp-json"


class ResultsFile(msgspec.Struct, frozen=True, kw_only=True):
    """The results of one pytest session."""

    schema_version: int = SCHEMA_VERSION
    complete: bool  # False: written while the session was still running
    suites: tuple[SuiteResult, ...]


_FORMAT = VersionedJson(
    schema=ResultsFile,
    version=SCHEMA_VERSION,
    kind="a results file",
    error=ResultsError,
    remedy=_REMEDY,
    others={
        "accelerator": "a baseline file, not the results of a session; name a file that pytest"
        " --ddp-json=FILE wrote, or DIR/results.json of --ddp-report=DIR"
    },
)


def write_results(path: Path, suites: Sequence[SuiteResult], *, complete: bool) -> None:
    """Replace ``path`` by these results, or leave it unchanged and raise OSError."""
    replace_file(path, results_json(suites, complete=complete))


def keep_results(
    root: Path, name: str, suites: Sequence[SuiteResult], *, complete: bool = True
) -> Path:
    """Write results that no other file has to ``artifacts/``, or to a new temporary directory.

    Returns the path. Raises OSError, which names both, if neither can be written.
    """
    stamp = "".join(filter(str.isalnum, suites[0].date.partition("+")[0]))
    file, beside = f"{name}-{stamp}.json", root / "artifacts"
    try:
        beside.mkdir(exist_ok=True)
        write_results(beside / file, suites, complete=complete)
        return beside / file
    except OSError as error:
        refused = error.strerror
    try:
        with contextlib.ExitStack() as unless_written:
            elsewhere = Path(tempfile.mkdtemp(prefix="ddp-perf-"))  # nobody else can name it
            unless_written.callback(elsewhere.rmdir)
            write_results(elsewhere / file, suites, complete=complete)
            unless_written.pop_all()
            return elsewhere / file
    except OSError as error:
        where = f"neither {beside} ({refused}) nor the temporary directory ({error.strerror})"
        raise OSError(error.errno, f"{where} can be written") from None


def results_json(suites: Sequence[SuiteResult], *, complete: bool) -> bytes:
    """Return the content of a results file."""
    return msgspec.json.encode(ResultsFile(complete=complete, suites=tuple(suites)))


def read_results(path: Path) -> ResultsFile:
    """Read what `write_results` wrote.

    Raises ResultsError, which names the file, the field and the remedy.
    """
    results = _FORMAT.read(path)
    for number, suite in enumerate(results.suites):
        for problem in _problems(suite):
            raise ResultsError(f"{path}: suites[{number}].{problem}; {_REMEDY}")
    return results


def joined_results(paths: Sequence[Path]) -> ResultsFile:
    """Read files of other suites each as one; it is complete if all of them are.

    Raises ResultsError if one cannot be read, or if two contain the same suite.
    """
    file_of: dict[str, Path] = {}
    files = [read_results(path) for path in paths]
    for path, file in zip(paths, files, strict=True):
        for suite in file.suites:
            if suite.suite in file_of:
                raise ResultsError(
                    f"{path}: {suite.suite} is in {file_of[suite.suite]}, too, and a report has one"
                    " session of a suite; compare two with ddp-perf compare"
                )
            file_of[suite.suite] = path
    return ResultsFile(
        complete=all(file.complete for file in files),
        suites=tuple(suite for file in files for suite in file.suites),
    )


def _problems(suite: SuiteResult) -> Iterator[str]:
    """Yield each fault that the types do not exclude, with its field."""
    try:
        datetime.datetime.fromisoformat(suite.date)
    except ValueError:
        yield f"date: {suite.date!r} is not an ISO 8601 date"
    for case_id, measurement in suite.measurements.items():
        yield from _problems_of_launches(case_id, measurement)
        rows, launches = suite.summaries.get(case_id, ()), len(measurement.launches)
        if len(rows) != launches:
            yield f"summaries.{case_id}: {len(rows)} summaries of {launches} launches"
        for i, row in enumerate(rows):
            for problem in _problems_of_summary(row):
                yield f"summaries.{case_id}[{i}].{problem}"


def _problems_of_launches(case_id: str, measurement: Measurement) -> Iterator[str]:
    case = measurement.case
    if case.id != case_id:
        yield f"measurements.{case_id}.case.id: is {case.id!r}"
    for i, launch in enumerate(measurement.launches):
        ranks = f"measurements.{case_id}.launches[{i}].ranks"
        if not all(rank.step_s and min(rank.step_s) > 0 for rank in launch.ranks):
            yield f"{ranks}: a rank has no step, or a step has no time"
        if case.world_size < 1 or len(launch.ranks) != case.run_ranks:
            yield f"{ranks}: {len(launch.ranks)} ranks, of {case.run_ranks} that run"


def _problems_of_summary(row: LaunchSummary) -> Iterator[str]:
    if STEP_TIME.name not in row.values:
        yield f"values.{STEP_TIME.name}: missing"
    figures = msgspec.structs.asdict(row) | row.values | {**row.clocks_mhz}
    # The overhead may be 0.
    other = {"round", "node", "values", "clocks_mhz", "decomposition", "overhead_s"}
    for name in figures.keys() - other:
        if not 0 < figures[name] < math.inf:
            yield f"{name}: {figures[name]} is no measured figure"


def results_schema() -> dict[str, Any]:
    """Return the JSON Schema of a results file."""
    return msgspec.json.schema(ResultsFile)


# The conclusion from all findings of a session: the worst one decides.


class Conclusion(str, enum.Enum):
    """The possible conclusions of the commands that judge."""

    PASS = "PASS"
    REGRESSION = "REGRESSION"
    UNDECIDED = "UNDECIDED"

    @property
    def exit_code(self) -> ExitCode:
        return _EXIT_CODES[self]


_EXIT_CODES = {
    Conclusion.PASS: ExitCode.GREEN,
    Conclusion.REGRESSION: ExitCode.RED,
    Conclusion.UNDECIDED: ExitCode.UNDECIDED,
}


def conclude(findings: Iterable[Finding], *, failed: bool, missing: bool) -> Conclusion:
    """Return the conclusion; ``failed`` and ``missing``: a case was, so that it has no finding.

    An acknowledged regression does not fail until its day, and is no pass either.
    """
    findings = list(findings)
    expected = any(found.is_expected for found in findings)
    outcomes = {found.verdict.outcome for found in findings if not found.is_expected}
    if failed or any(one.fails and one is not Outcome.NO_BASELINE for one in outcomes):
        return Conclusion.REGRESSION
    if missing or expected or not outcomes or not all(one.is_good for one in outcomes):
        return Conclusion.UNDECIDED
    return Conclusion.PASS
