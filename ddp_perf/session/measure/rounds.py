"""Rounds of launches: what they share, their order and time, and the looks between them."""

from __future__ import annotations

import collections
import contextlib
import datetime
import hashlib
import os
import re
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import msgspec
from msgspec.structs import replace

from ddp_perf.baselines.save import SaveMode
from ddp_perf.baselines.store import BaselineStore
from ddp_perf.core.baseline import TYPICAL_STEP, Baseline
from ddp_perf.core.case import TIMED_ON_GPU_S, Case, Tier
from ddp_perf.core.environment import Environment
from ddp_perf.core.injection import Injection
from ddp_perf.core.launch import LaunchFailure, LaunchRequest, LaunchResult
from ddp_perf.core.measurement import Finding, Measurement
from ddp_perf.core.metric import needs_single_rank
from ddp_perf.errors import BaselineError, ResultsError
from ddp_perf.launch.launcher import Launcher
from ddp_perf.render.units import counted, describe_duration
from ddp_perf.session.measure.experiment import (
    Arm,
    Block,
    Experiment,
    History,
    Log,
    LoggedLaunch,
    open_log,
)
from ddp_perf.stats.rule.looks import next_look, plan_looks
from ddp_perf.system.capacity import Capacity
from ddp_perf.system.git import CodeState
from ddp_perf.system.host.termination import held_signals
from ddp_perf.system.ledger import Conditions, Entries

# The folders of a session's artifacts: traces, flight records, and what ranks print.


def profile_directory(root: Path, case: Case) -> Path:
    """Return the folder for the traces of a case's ranks."""
    return _directory(root, "profile", case)


def hang_directory(root: Path, case: Case) -> Path:
    """Return the folder for the flight records of a case's ranks that hung."""
    return _directory(root, "hangs", case)


def output_directory(root: Path, case: Case) -> Path:
    """Return the folder for what a case's ranks print in its first launch."""
    return _directory(root, "output", case)


def _directory(root: Path, kind: str, case: Case) -> Path:
    """Return the folder of a case. Its id may contain an environment variable's value: any text."""
    return root / "artifacts" / kind / case.suite / re.sub(r"[^\w.=-]", "_", case.id)


# Today's code as a session remembers it, so that it can run again.


class SessionCode(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the user's code, and the packages that its ranks import."""

    state: CodeState | None
    problem: str | None  # why a stored session of it cannot be run again, with the remedy
    packages: Callable[[Sequence[Case]], dict[str, str]]

    def in_environment(self, environment: Environment, cases: Sequence[Case]) -> Environment:
        """Return the environment with what names the code, and the packages of these cases."""
        tree = self.state.tree if self.state is not None else None
        return msgspec.structs.replace(environment, tree=tree, packages=self.packages(cases))


def no_packages(cases: Sequence[Case]) -> dict[str, str]:
    return {}


UNKNOWN_CODE = SessionCode(state=None, problem=None, packages=no_packages)

# The launcher of a session, what its launches have in common, and the user's options.


LaunchOutcome = LaunchResult | LaunchFailure


class Progress(Protocol):
    """An observer of a suite: of the launches that are planned, and of their outcomes."""

    def begin(
        self, suite: str, plan: Sequence[LaunchRequest], expected_s: Mapping[str, float]
    ) -> None:
        """Note a plan. ``expected_s``: of a launch, by id of each case that was timed before."""

    def extend(self, plan: Sequence[LaunchRequest], why: str, *, judged: bool) -> None:
        """Note further launches. Those that are not judged follow all that are."""

    def launched(self, request: LaunchRequest, outcome: LaunchOutcome) -> None:
        """Note an outcome. A case that failed is not launched again."""

    def warn(self, line: str) -> None:
        """Write a line about the launches for a person, also with -q."""

    def end(self) -> None: ...


class SessionOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of pytest that a session follows. To add one, add it here and in the options."""

    budget_s: float  # seconds of launches for each case, if it needs more than the suite's
    explain_budget_s: float  # seconds of further launches for each case that became slower
    save_mode: SaveMode | None = None  # None: nothing is stored
    reason: str | None = None  # required by save_mode "accept"
    begins: bool = True  # a level of a case without sessions; False: "append" of a strict session
    profile_steps: int | None = None  # of one more launch of each case; None: no profile
    accept_improvements: bool = True  # a settled one becomes the level, if sessions are appended


class Bench(msgspec.Struct, frozen=True, kw_only=True):
    """The parts that a session measures with: its launcher, the machine, the store, its code."""

    launcher: Launcher
    progress: Progress
    capacity: Capacity
    store: BaselineStore
    code: SessionCode = UNKNOWN_CODE  # what a stored session is remembered by
    root: Path  # where the measured code is checked out; its artifacts/ receive what ranks write
    import_paths: tuple[str, ...] = ()  # where ranks import a user's workload from
    injections: tuple[Injection, ...] = ()  # a case gets those that apply to it
    nodes: tuple[str, ...] = ()  # that a launch can be sent to, by name; (): there is one machine
    each_node: bool = False  # the nodes are alike, and each of them launches every case

    @property
    def one_by_one(self) -> tuple[str, ...]:
        """The nodes of which each launches every case by itself; (): a case is launched on any."""
        return self.nodes if self.each_node else ()


# Rounds of launches: their order, the time of one, and their execution.


# The seconds of a launch on GPUs, if no session has measured them yet. Those beyond its timed steps
# are a guess: CUDA's context, NCCL's communicator and the first kernels, and the shortest extra
# warm-up after which `worker.timing.warm_up` calls a GPU steady.
_LEAST_ON_GPU_S = 5.0 + 3.5 + TIMED_ON_GPU_S
_LEAST_S: dict[Tier, float] = {"cpu": 0.0, "gpu": _LEAST_ON_GPU_S}  # of one never timed


def interleave(
    turns: Sequence[tuple[Case, int]], bench: Bench, *, start: int = 0, nodes: Sequence[str] = ()
) -> list[LaunchRequest]:
    """Plan launches in the order A B C A B C …; ``turns`` gives the number for each case.

    Each case gets the injections that apply to it. ``start`` is the number of the first round.
    With ``nodes`` each round launches every case once on each of them. The next round begins with
    the next node, so that none of them is always measured first.
    """
    return [
        LaunchRequest(
            case=case,
            round=start + round_,
            node=node,
            import_paths=bench.import_paths,
            injections=tuple(i for i in bench.injections if i.applies_to(case)),
            records=str(hang_directory(bench.root, case)),
        )
        for round_ in range(max((launches for _, launches in turns), default=0))
        for node in _rotated(nodes, start + round_)
        for case, launches in turns
        if round_ < launches
    ]


def _rotated(nodes: Sequence[str], places: int) -> Sequence[str | None]:
    """Return the nodes from another one on; a single None if there is none to name."""
    first = places % len(nodes) if nodes else 0
    return [*nodes[first:], *nodes[:first]] or [None]


def launch_times(cases: Iterable[Case], baseline: Baseline) -> dict[str, float]:
    """Return the seconds of a launch in the baseline, by id of each case that it times."""
    times = {case.id: launch_s(case, baseline) for case in cases}
    return {case_id: time for case_id, time in times.items() if time is not None}


def launch_s(case: Case, baseline: Baseline) -> float | None:
    """Return the seconds that a launch of the case took in the baseline, or None if it has none."""
    stored = baseline.cases.get(case.id)
    if stored is None:
        return None
    steps = [value for session in stored.sessions for value in session.values(TYPICAL_STEP)]
    if not steps:
        return None
    step_s = statistics.median(steps)
    overhead_s = statistics.median(session.overhead_s for session in stored.sessions)
    schedule = case.schedule
    count = schedule.steps_on_gpu(step_s) if case.tier == "gpu" else schedule.steps
    return step_s * count + overhead_s


def session_length(cases: Sequence[Case], baselines: Mapping[Tier, Baseline]) -> str:
    """Return the launches of a session, and how long the stored sessions show that they take.

    A launch on GPUs that was never timed counts with what it takes at least, by an assumption that
    the text states; one on CPUs does not count.
    """
    launches = sum(case.schedule.launches for case in cases)
    suites = len({case.suite for case in cases})
    untimed = [case for case in cases if launch_s(case, baselines[case.tier]) is None]
    total_s = launches_s(cases, baselines)
    what = f"{counted(launches, 'launch')} of {counted(suites, 'suite')}"
    if not total_s:
        return f"{what}, for how long a stored session will show"
    length = f"{what}, {'at least' if untimed else 'about'} {describe_duration(total_s)}"
    if assumed := sum(case.schedule.launches for case in untimed if case.tier == "gpu"):
        length += f" ({assumed} were never timed: {_LEAST_ON_GPU_S:g} s each is assumed)"
    return length


def further_length(settle_s: float, audit_s: float) -> str:
    """Return how much longer a session may take: to settle, and for its audit; "": no longer."""
    parts = [f"settling: up to {describe_duration(settle_s)} more"] if settle_s else []
    if audit_s:
        parts.append(f"the audit of the gate: up to {describe_duration(audit_s)} more")
    return "".join(f"; {part}" for part in parts)


def audit_length(
    cases: Iterable[Case], baselines: Mapping[Tier, Baseline], *, settle_s: float
) -> float:
    """Return the most seconds that the audit of a session of these cases takes; 0: it has none.

    Whichever case is drawn: that with the longest launches, and its second stage. Only a case that
    was timed before has an audit.
    """
    timed = ((case, launch_s(case, baselines[case.tier])) for case in cases)
    known = [case.schedule.launches * seconds for case, seconds in timed if seconds is not None]
    return max(known) + settle_s if known else 0.0


def launches_s(cases: Iterable[Case], baselines: Mapping[Tier, Baseline]) -> float:
    """Return the seconds of all launches of the cases, as ``session_length`` counts them."""
    return sum(
        case.schedule.launches * expected_launch_s(case, baselines[case.tier]) for case in cases
    )


def expected_launch_s(case: Case, baseline: Baseline) -> float:
    """Return the seconds of a launch in the baseline; if it was never timed, what is assumed."""
    seconds = launch_s(case, baseline)
    return _LEAST_S[case.tier] if seconds is None else seconds


def stored_baseline(store: BaselineStore, capacity: Capacity, tier: Tier) -> Baseline:
    """Return what is stored of the machine, of which only the time of a launch is wanted.

    So a broken file is as good as none.
    """
    key = capacity.accelerator_key(tier)
    try:
        return store.load(key)
    except BaselineError:
        return Baseline(accelerator=key, units={}, cases={})


def run_plan(
    plan: Sequence[LaunchRequest],
    bench: Bench,
    *,
    measured: Mapping[str, Measurement],
    on_round: Callable[[dict[str, Measurement]], None],
    log: Entries[LoggedLaunch] | None = None,
) -> dict[str, Measurement]:
    """Run the plan, and return ``measured``, by case id, with its launches added.

    ``on_round`` gets the measurements after every round, and also if the run is interrupted, so
    that no finished launch is lost. What ``log`` has of the plan is not launched. Raises
    LaunchError if ranks cannot be started.
    """
    log = Entries[LoggedLaunch]() if log is None else log
    rounds = _Rounds(plan, bench, measured, on_round, earlier=log.earlier)
    try:
        Experiment(log, keeps_results=True).run(rounds)
    except BaseException:
        rounds.next(log.entries)  # the last one that was finished
        on_round(rounds.measured)
        raise
    return rounds.measured


class _Rounds:
    """The policy of a session: planned launches in their order.

    A case that failed once is not launched again; of nodes that are measured one by one, not on
    that node. What failed in an earlier run, of ``earlier`` launches, may be over.
    """

    def __init__(
        self,
        plan: Sequence[LaunchRequest],
        bench: Bench,
        measured: Mapping[str, Measurement],
        on_round: Callable[[dict[str, Measurement]], None],
        *,
        earlier: int,
    ) -> None:
        self.measured = dict(measured)
        self._waiting, self._bench, self._on_round = list(plan), bench, on_round
        self._earlier, self._read = earlier, 0
        self._outcomes: dict[tuple[str, str, int], LaunchOutcome] = {}

    def next(self, history: History) -> Block | None:
        for number, launch in enumerate(history[self._read :], start=self._read):
            outcome = launch.result or launch.failure
            if outcome is not None and not (launch.failure and number < self._earlier):
                self._outcomes[launch.case_id, launch.arm, launch.block] = outcome
        self._read = len(history)
        while self._waiting:
            request = self._waiting[0]
            name = request.node or ""
            outcome = self._outcomes.get((request.case.id, name, request.round))
            if outcome is None:
                return Block(request.round, (Arm(name, self._bench.launcher, request),))
            self._add(request, outcome)
        return None

    def _add(self, request: LaunchRequest, outcome: LaunchOutcome) -> None:
        if request.node is not None:
            outcome = replace(outcome, node=request.node)
        failed = isinstance(outcome, LaunchFailure)
        with held_signals():  # it is added once
            self.measured[request.case.id] = with_outcome(self.measured[request.case.id], outcome)
            self._waiting = [
                other
                for other in self._waiting[1:]
                if not (failed and (other.case.id, other.node) == (request.case.id, request.node))
            ]
        self._bench.progress.launched(request, outcome)
        if not self._waiting or self._waiting[0].round != request.round:
            self._on_round(self.measured)


# The log of a suite's launches, from which a session goes on that was ended.


# Launches of longer ago are another session's, since a machine changes: by the newest launch, and
# by the first one.
_STALE_S, _LONGEST_S = 3600.0, 6 * 3600.0
_OF_SHELL = {"_", "SHLVL", "PWD", "OLDPWD", "COLUMNS", "LINES"}


class SessionLog(Entries[LoggedLaunch]):
    """Launches in memory that are also in a file, as long as that can be written.

    ``date`` is that of the session that began: one that goes on is no other session.
    """

    def __init__(self, log: Log | None, date: str) -> None:
        super().__init__()
        self._log, self.date = log, date
        if log is not None and log.entries:
            self.entries, self.earlier = [*log.entries], log.earlier
            self.date = log.entries[0].session or date

    def append(self, entry: LoggedLaunch) -> None:
        entry = replace(entry, session=self.date)
        super().append(entry)
        if self._log is not None:
            with contextlib.suppress(ResultsError):
                self._log.append(entry)

    def discard(self) -> None:
        if self._log is not None:
            self._log.discard()


@contextlib.contextmanager
def logged_session(
    cases: Sequence[Case], bench: Bench, environment: Environment, date: str
) -> Iterator[SessionLog]:
    """Yield the log of a session of these cases, which it deletes at the end of the block.

    A session that is ended within it, or cannot be stored, leaves the log, and the same command
    goes on from it within an hour. A session whose code is not known has none. One that cannot be
    written ends no session.
    """
    if environment.tree is None:
        yield SessionLog(None, date)
        return
    try:
        log = _open_session_log(cases, bench, environment)
        if log.entries and _is_stale(log):
            log.discard()
            log.close()
            log = _open_session_log(cases, bench, environment)
    except ResultsError as error:
        bench.progress.warn(f"the session cannot go on if it is ended: {error}")
        yield SessionLog(None, date)
        return
    if log.entries:
        many = counted(len(log.entries), "launch")
        bench.progress.warn(
            f"goes on after {many} of a session that was ended; to begin anew, delete {log.path}"
        )
    with contextlib.closing(log):
        yield SessionLog(log, date)
        log.discard()


def _open_session_log(cases: Sequence[Case], bench: Bench, environment: Environment) -> Log:
    question = {"suite": cases[0].suite, "cases": " ".join(case.id for case in cases)}
    options = msgspec.json.encode([*cases, *bench.injections], order="sorted")
    conditions: Conditions = {
        **environment.conditions(),
        "tree": environment.tree,
        "variables": _digest_of_variables(os.environ),
        "options": hashlib.sha256(options).hexdigest(),
    }
    return open_log(bench.root / "artifacts" / "launches", question, conditions)


def _digest_of_variables(environ: Mapping[str, str]) -> str:
    """Return a name of what ranks inherit, without what a shell or pytest sets anew each time."""
    kept = {
        name: text
        for name, text in environ.items()
        if name not in _OF_SHELL and not name.startswith("PYTEST_")
    }
    return hashlib.sha256(msgspec.json.encode(kept, order="sorted")).hexdigest()


def _is_stale(log: Log) -> bool:
    """Return whether a session may not go on from the log; so it is if the clock was set back."""
    now = datetime.datetime.now(datetime.timezone.utc)
    first, newest = (
        (now - datetime.datetime.fromisoformat(one.started)).total_seconds()
        for one in (log.entries[0], log.entries[-1])
    )
    return first > _LONGEST_S or not 0 <= newest <= _STALE_S


def with_outcome(measurement: Measurement, outcome: LaunchOutcome) -> Measurement:
    """Return the measurement with a finished launch, or a failed one."""
    launches, failures = measurement.launches, measurement.failures
    if isinstance(outcome, LaunchFailure):
        failures = (*failures, outcome)
    else:
        launches = (*launches, outcome)
    return replace(measurement, launches=launches, failures=failures)


# Interim looks: which undecided cases get more launches.
#
# The first look is after the suite's number of launches. A verdict that is decided then is final,
# and its case is done: a quiet session is short. An undecided case that more launches may decide
# gets another look, until its budget is spent.


def looks_of(
    cases: Iterable[Case], baseline: Baseline, budget_s: float
) -> dict[str, tuple[int, ...]]:
    """Return the number of launches at each look, by case id, within the budget.

    The baseline gives the time of a launch, not this session: see `plan_looks`.
    """
    looks = {}
    for case in cases:
        first, one_s = case.schedule.launches, launch_s(case, baseline)
        affordable = int(budget_s / one_s) if one_s else first
        looks[case.id] = plan_looks(first, affordable)
    return looks


def launches_before_next_look(
    measurements: Mapping[str, Measurement],
    findings: Iterable[Finding],
    looks: Mapping[str, tuple[int, ...]],
    budget_s: float,
) -> dict[str, int]:
    """Return how many launches each case gets before the next look, by case id; empty: none."""
    more: dict[str, int] = {}
    for finding in findings:
        measurement = measurements[finding.case_id]
        case, have = measurement.case, len(measurement.launches)
        look = next_look(finding.verdict, have, looks[case.id])
        if measurement.failed or look is None or _too_long(measurement, look, budget_s):
            continue
        paired = [case.id]
        if needs_single_rank(finding.metric) and case.single is not None:
            paired.append(case.single)  # the ratio is paired within each round
        for case_id in paired:
            more[case_id] = max(more.get(case_id, 0), look - have)
    return more


def _too_long(measurement: Measurement, look: int, budget_s: float) -> bool:
    """Return whether launches up to the look would exceed the budget. To stop is always safe."""
    spent_s = sum(launch.wall_s for launch in measurement.launches)
    return spent_s / len(measurement.launches) * look > budget_s


def describe_more(more: Mapping[str, int], looks: Mapping[str, Sequence[int]]) -> str:
    """Return one line on why the session continues with further launches."""
    launches = counted(sum(more.values()), "more launch")
    verb = "is" if len(more) == 1 else "are"
    return f"{len(more)} of {counted(len(looks), 'case')} {verb} undecided: {launches}"


# The launches that a suite has yet to finish, and the time that they take.


class Pending:
    """The launches of a suite that are not finished.

    Each is expected to take as long as the newest launch of its case; before the first one, as
    long as in the baseline.
    """

    def __init__(self, expected_s: Mapping[str, float]) -> None:
        self.done = 0
        self._seconds = dict(expected_s)  # of a launch, by case id
        # By case id and node.
        self._waiting: collections.Counter[tuple[str, str | None]] = collections.Counter()

    def add(self, plan: Iterable[LaunchRequest]) -> None:
        """Add launches that are now planned."""
        self._waiting.update((request.case.id, request.node) for request in plan)

    def finish(self, request: LaunchRequest, outcome: LaunchOutcome) -> None:
        """Note a finished launch. A case that failed is not launched again, on that node."""
        self.done += 1
        if isinstance(outcome, LaunchFailure):
            del self._waiting[request.case.id, request.node]
        else:
            self._waiting[request.case.id, request.node] -= 1
            self._seconds[request.case.id] = outcome.wall_s

    @property
    def total(self) -> int:
        """The number of launches, finished and not."""
        return self.done + self._waiting.total()

    def includes(self, case_id: str) -> bool:
        """Return whether a launch of the case is not finished."""
        return any(case == case_id for case, _ in +self._waiting)

    @property
    def left_s(self) -> float | None:
        """The seconds of all these launches; None if one of their cases was never timed."""
        waiting = +self._waiting  # without the cases that are finished
        if not {case_id for case_id, _ in waiting} <= self._seconds.keys():
            return None
        return sum(count * self._seconds[case_id] for (case_id, _), count in waiting.items())
