"""The next command after a session: what failed, then its worst verdict, then what it stored."""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ddp_perf.core.baseline import HALF_DAY, REFERENCE_SESSIONS
from ddp_perf.core.measurement import Finding
from ddp_perf.core.metric import LOSS, NODES, STRUCTURE
from ddp_perf.core.note import NoteKind
from ddp_perf.core.verdict import Outcome, Settled
from ddp_perf.render.model import NextStep, Status
from ddp_perf.render.units import counted
from ddp_perf.report.next_steps import rules
from ddp_perf.report.next_steps.rules import ACCEPT, DOCTOR, SAVE, SEE_DISTURBANCE, Rule, first
from ddp_perf.report.status import rank, status_of
from ddp_perf.session.result import SuiteResult, is_waiting

_APPEND = f"{SAVE}=append"


def after_session(suites: Sequence[SuiteResult]) -> NextStep | None:
    """Return the one command that helps most after a session, or None if nothing is left to do."""
    found = [Found(result, finding) for result in suites for finding in result.findings]
    worst_first = sorted(
        (one for one in found if one.is_unresolved()),
        key=lambda one: (rank(*one), one.finding.metric == STRUCTURE),
    )
    return first(FAILED, suites) or first(VERDICT, worst_first[:1]) or first(STORED, suites)


class Found(NamedTuple):
    """A verdict in the result of its suite: what the rules ask of it, and what they state."""

    result: SuiteResult
    finding: Finding

    def is_unresolved(self) -> bool:
        """Return whether it is neither green nor stored, and of ranks as they are."""
        counts = status_of(*self) not in (Status.GREEN, Status.UNTESTED)
        return counts and not (self.result.is_resolved(self.finding) or self.result.injections)

    def has(self, *outcomes: Outcome, metric: str | None = None) -> bool:
        """Return whether it is one of these verdicts, on this metric or on any."""
        return self.finding.verdict.outcome in outcomes and metric in (None, self.finding.metric)

    def is_refused(self) -> bool:
        """Return whether the session was to give it a baseline, and gave none."""
        return self.has(Outcome.NO_BASELINE) and self.result.is_refused(self.finding)

    @property
    def cause(self) -> str | None:
        """The cause that kept the case from being stored, if it is known."""
        refused = self.result.not_saved.get(self.finding.case_id)
        return refused.cause if refused else None

    @property
    def settled(self) -> Settled:
        return self.result.settled.get(self.finding.case_id) or Settled(reference=None)

    def was_settled(self) -> bool:
        """Return whether it is slower than the commit that it was settled beside."""
        return self.has(Outcome.REGRESSION) and self.settled.commit is not None

    @property
    def minutes(self) -> int:
        """The time that is enough to settle it; 0: unknown."""
        is_open = self.finding.verdict.outcome.is_open
        return math.ceil((self.settled.needed_s or 0.0) / 60) if is_open else 0

    @property
    def alone(self) -> str:
        """The command that measures the case alone."""
        return _alone(self.result, self.finding.case_id)

    @property
    def launches(self) -> int:
        """The number of launches that decide it, with those that it has."""
        verdict = self.finding.verdict
        return self.finding.launches + (verdict.likely_launches or verdict.more_launches or 0)

    @property
    def since(self) -> str:
        """The day of the baseline."""
        return (self.finding.baseline_date or self.result.date)[:10]

    @property
    def apart(self) -> str:
        """The time when a further session counts: those of one half-day count as one."""
        saved = self.result.saved.get(self.finding.case_id)
        newest = self.finding.baseline_date if self.finding.sessions == 1 else None
        if saved is not None:
            newest = saved.beside or self.result.date
        if newest is None:
            return "12 hours after the one before"
        counts = datetime.datetime.fromisoformat(newest) + HALF_DAY
        return f"from {counts:%Y-%m-%d %H:%M} UTC on (closer ones count as one)"

    def store_again(self, *options: str) -> str:
        """Return the command that measures the session again, and stores as it did."""
        mode = self.result.save_mode
        saving = {None: "", "accept": ACCEPT}.get(mode, f"{SAVE}={mode}")
        return measure_again(self.result, *options, saving)

    def invalid_again(self) -> str:
        """Return the command that measures what is INVALID again: the case, or all if several."""
        found = (Found(self.result, one) for one in self.result.findings)
        cases = {one.finding.case_id for one in found if one.has(Outcome.INVALID)}
        return self.alone if len(cases) == 1 else self.store_again()

    def has_bad_loss(self) -> bool:
        """Return whether a loss compares with nothing: it is not finite, or launches differ."""
        is_bad = self.has(Outcome.REGRESSION) and not self.finding.baseline_date
        return self.finding.metric == LOSS and (is_bad or self.has(Outcome.INVALID))

    def has_one_launch(self) -> bool:
        return self.result.measurements[self.finding.case_id].case.schedule.launches == 1

    def is_other_work(self) -> bool:
        of_structure = self.finding.metric == STRUCTURE and not self.has(Outcome.NO_BASELINE)
        return of_structure or self.has(Outcome.INCOMPARABLE)

    def accept_work(self) -> str:
        """Return the command that accepts the work of the case, or that of all if all changed."""
        every = (Found(self.result, one) for one in self.result.findings)
        changed = {
            one.finding.case_id for one in every if one.is_unresolved() and one.is_other_work()
        }
        all_changed = changed == self.result.measurements.keys()
        return measure_again(self.result, ACCEPT) if all_changed else f"{self.alone} {ACCEPT}"


def _has(*outcomes: Outcome, metric: str | None = None) -> Callable[[Found], bool]:
    return lambda one: one.has(*outcomes, metric=metric)


def _measure(*options: str) -> Callable[[Found], str]:
    return lambda one: measure_again(one.result, *options)


_store, _append, _accept = map(_measure, (SAVE, _APPEND, ACCEPT))


def measure_again(result: SuiteResult, *options: str) -> str:
    """Return the command that measures the whole session again, with these options.

    What it was to store is left out. A script that stores by itself goes on to do so.
    """
    if not result.command:  # of `ddp-perf try`, whose results are not judged
        return "pytest -m gpu" if result.tier == "gpu" else "pytest -m 'perf and cpu'"
    by_itself = None if SAVE in result.command else f"{SAVE}={result.save_mode}"
    return rules.again(result.command, *(option for option in options if option != by_itself))


def _alone(result: SuiteResult, case_id: str) -> str:
    return result.commands.get(case_id) or measure_again(result)


def _failed(result: SuiteResult) -> list[str]:
    return [case_id for case_id, measured in result.measurements.items() if measured.failures]


def _forming(result: SuiteResult) -> list[Finding]:
    """Return the findings whose reference lacks sessions, that with the fewest first.

    A session that is stored, or that has a case of one launch, adds none.
    """
    if result.saved or any(len(one.launches) < 2 for one in result.measurements.values()):
        return []
    few = (found for found in result.findings if 0 < found.sessions < REFERENCE_SESSIONS)
    return sorted(few, key=lambda found: found.sessions)


def _add_one(result: SuiteResult) -> str:
    fewest = _forming(result)[0]
    sessions = f"{counted(fewest.sessions, 'session')} of {REFERENCE_SESSIONS}"
    return f"the baseline has {sessions}; add one, {Found(result, fewest).apart}"


# The tables: of what failed, of the worst verdict, and of what is stored.

FAILED: tuple[Rule[SuiteResult], ...] = (
    (
        lambda one: one.injections and one.summaries,
        "measure the ranks without a slow-down",
        measure_again,
    ),
    (
        _failed,
        "fix what failed, and measure that case alone",
        lambda one: _alone(one, _failed(one)[0]),
    ),
)

VERDICT: tuple[Rule[Found], ...] = (
    (
        lambda one: one.result.is_not_accepted(one.finding),
        "accept it again when the machine is quiet",
        _accept,
    ),
    (
        lambda one: one.cause == "unannounced" and one.result.is_open(one.finding),
        "restore {0.result.baseline_path} if it was lost, or announce the first session",
        _store,
    ),
    (
        lambda one: one.cause == "other work" and one.has(Outcome.NO_BASELINE),
        "see what the step does more, and fix it or accept it there",
        "pytest -m work",
    ),
    (
        lambda one: one.is_refused() and one.has_one_launch(),
        "measure several launches, since one stores the structure only",
        lambda one: one.store_again("--ddp-launches=5"),
    ),
    (
        lambda one: one.is_refused() and one.result.is_open(one.finding),
        "store it again when the machine is quiet",
        Found.store_again,
    ),
    (Found.is_refused, "fix what prevented storing it, and store it again", Found.store_again),
    (_has(Outcome.NO_BASELINE), "store what has no baseline yet", _store),
    (Found.is_other_work, rules.IF_INTENDED, Found.accept_work),
    (Found.has_bad_loss, "fix the loss, and measure it again", "{0.alone}"),
    (
        lambda one: one.was_settled() and one.settled.culprit,
        "see the commit that made it slower",
        "git show {0.settled.culprit.name:.12}",
    ),
    (
        lambda one: one.was_settled() and one.settled.searched,
        "continue the search for the commit since {0.settled.label}",
        lambda one: rules.bisect(one.settled.commit or "", "HEAD", one.finding.case_id),
    ),
    (Found.was_settled, "see what changed since {0.settled.label}", "git diff {0.settled.commit}"),
    (
        lambda one: one.minutes,
        "settle it in more time",
        lambda one: one.store_again(f"--ddp-settle={one.minutes}m"),
    ),
    (
        _has(Outcome.REGRESSION),
        "see what changed since the baseline",
        "git log --oneline --since={0.since} && git diff --stat",
    ),
    (_has(Outcome.MISSES_TARGET), "check that the machine is fit for its target", DOCTOR),
    (
        _has(Outcome.UNDECIDED, metric=NODES),
        "add a session, or measure more nodes, to see whether one is slow",
        _append,
    ),
    (
        lambda one: one.has(Outcome.INVALID) and one.finding.target and not one.finding.excuse,
        "change targets in {0.finding.target.file}, and measure it again",
        "{0.alone}",
    ),
    (
        _has(Outcome.BAD_NODE),
        "leave the node out of the cluster file or drain it, and run this on it",
        DOCTOR,
    ),
    (
        lambda one: one.finding.excuse and one.finding.excuse.kind is NoteKind.OTHER_CLOCK,
        "unlock the clock, or accept it if it is meant to stay",
        _accept,
    ),
    (_has(Outcome.INVALID), "measure again when the machine is quiet", Found.invalid_again),
    (_has(Outcome.SUSPECT), "see whether a further session agrees, {0.apart}", _append),
    (
        lambda one: one.finding.verdict.more_launches and not is_waiting(one.finding),
        "measure more launches",
        "{0.alone} --ddp-launches={0.launches}",
    ),
    (
        lambda one: is_waiting(one.finding) or one.finding.verdict.more_sessions,
        "add a session of code that you trust, {0.apart}",
        _append,
    ),
    (_has(Outcome.UNDECIDED), SEE_DISTURBANCE, DOCTOR),
)

STORED: tuple[Rule[SuiteResult], ...] = (
    (
        lambda one: one.saved and one.save_mode == "missing",
        "judge the next session against what is stored",
        measure_again,
    ),
    (
        lambda one: one.saved_structures and not one.saved,
        rules.COMMIT,
        lambda one: rules.git_add(one.saved_structures.values()),
    ),
    (_forming, _add_one, lambda one: measure_again(one, _APPEND)),
)
