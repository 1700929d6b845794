"""The verdict that represents a case, and the next command after it."""

from __future__ import annotations

import datetime
import math
import shlex
from collections.abc import Iterator, Sequence

from ddp_perf.baselines.save import without_saving
from ddp_perf.core.baseline import HALF_DAY, REFERENCE_SESSIONS
from ddp_perf.core.measurement import Finding
from ddp_perf.core.metric import LOSS, NODES, STRUCTURE
from ddp_perf.core.verdict import OPEN, Outcome, Settled
from ddp_perf.render.model import NextStep, Status
from ddp_perf.render.units import counted
from ddp_perf.session.gate.disturbance import find_disturbance
from ddp_perf.session.result import FAILING, SuiteResult, is_waiting

# The verdict that represents a case, and its effect on the session.


NO_TEST = "(no test)"  # the mark of what is shown and not counted

# Among verdicts with the same status, the first in this order represents the case.
SEVERITY = [
    Outcome.REGRESSION,
    Outcome.BAD_NODE,
    Outcome.MISSES_TARGET,
    Outcome.INCOMPARABLE,
    Outcome.NO_BASELINE,
    Outcome.INVALID,
    Outcome.SUSPECT,
    Outcome.UNDECIDED,
    Outcome.PASS,
    Outcome.IMPROVEMENT,
    Outcome.MEETS_TARGET,
]
_PASSING = (
    Outcome.PASS,
    Outcome.IMPROVEMENT,
    Outcome.MEETS_TARGET,
)


def worst(result: SuiteResult, findings: Sequence[Finding]) -> Finding:
    """Return the worst finding. Raises ValueError if there is none.

    A finding that fails the session precedes a worse one that was acknowledged, and one that a
    test asserts precedes a worse one that no test asserts.
    """
    statuses = list(Status)
    return min(
        findings,
        key=lambda found: (
            statuses.index(status_of(result, found)),
            SEVERITY.index(found.verdict.outcome),
        ),
    )


def status_of(result: SuiteResult, finding: Finding) -> Status:
    """Return the status that the test of this finding ends with."""
    outcome = finding.verdict.outcome
    if not result.is_asserted(finding.case_id, finding.metric):
        return Status.UNTESTED
    if result.is_not_accepted(finding):
        return Status.RED
    if outcome in FAILING and not result.is_resolved(finding):
        undecided = finding.is_expected or result.is_open(finding)
        return Status.UNDECIDED if undecided else Status.RED
    return Status.GREEN if outcome in _PASSING else Status.UNDECIDED


def mark_of(result: SuiteResult, finding: Finding) -> str | None:
    """Return the mark that a verdict is shown with, or None if it counts as it is."""
    if status_of(result, finding) is Status.UNTESTED:
        return NO_TEST
    if result.is_resolved(finding):
        return "(stored)"
    return "(known)" if finding.is_expected else None


# The next command: after a verdict that is not green, and at the end of a session.


_APPEND = "--save-baseline=append"
_ACCEPT = '--save-baseline=accept --ddp-reason "…"'
_CLOCKS = ("GPU clock", "GPU memory clock")  # what a disturbance by a changed clock begins with
_INTENDED = "if the change is intended, store this state as the one to compare with"


def next_step(suites: Sequence[SuiteResult]) -> NextStep | None:
    """Return the one command that helps most after a session, or None if nothing is left to do."""
    for result in suites:
        if result.injections and result.summaries:
            why = "the ranks were slowed on purpose; measure them as they are"
            return NextStep(why=why, command=_again(result))
    steps = [step for result in suites for step in _failed(result)]
    steps += [step for _, step in sorted(_ranked(suites), key=lambda ranked: ranked[0])]
    for result in suites:
        steps += [*_stored(result), *_committed(result), *_forming(result)]
    return steps[0] if steps else None


def step_after(result: SuiteResult, finding: Finding) -> NextStep | None:
    """Return the command that helps after this verdict.

    Return None if it is green or does not count, or if the ranks were slowed on purpose.
    """
    status = status_of(result, finding)
    if status in (Status.GREEN, Status.UNTESTED) or result.is_resolved(finding):
        return None
    if result.injections:
        return None
    why, command = _after(result, finding)
    return NextStep(why=why, command=command)


def _again(result: SuiteResult, *options: str) -> str:
    """Return the command that measures the whole session again, with these options.

    What it was to store is left out. A script that stores by itself goes on to do so.
    """
    if not result.command:  # of `ddp-perf try`, whose results are not judged
        marks = "gpu" if result.tier == "gpu" else "perf and cpu"
        return " ".join([shlex.join(["pytest", "-m", marks]), *filter(None, options)])
    words = shlex.split(result.command)
    kept = without_saving(words)
    by_itself = f"--save-baseline={result.save_mode}" if kept == words else None
    return " ".join([shlex.join(kept), *(one for one in options if one and one != by_itself)])


def _after(result: SuiteResult, finding: Finding) -> tuple[str, str]:
    outcome, verdict = finding.verdict.outcome, finding.verdict
    case = result.commands.get(finding.case_id) or _again(result)
    if result.is_not_accepted(finding):
        return "NOT accepted; run again when the machine is quiet", _again(result, _ACCEPT)
    refused = result.not_saved.get(finding.case_id)
    if refused is not None and refused.cause == "unannounced" and result.is_open(finding):
        why = f"restore {result.baseline_path} if it was lost; if not, announce the first session"
        return why, _again(result, "--save-baseline")
    if outcome is Outcome.NO_BASELINE and refused is not None and refused.cause == "other work":
        return "see what the step does more; mend it, or accept it there", "pytest -m work"
    if outcome is Outcome.NO_BASELINE and result.is_refused(finding):
        if result.measurements[finding.case_id].case.schedule.launches == 1:
            more = _again(result, "--ddp-launches=5", _saving(result))
            return "one launch stores the structure only; measure several", more
        cases = counted(len(result.measurements), "case")
        what = f"{len(_not_stored(result))} of {cases} NOT stored completely"
        if found := find_disturbance(finding.case_id, result.measurements):
            what += f": {found.causes[0]}: ddp-perf doctor shows what runs beside"
        if result.is_open(finding):
            what += "; meanwhile pytest -m work and ddp-perf duel compare the code"
        return f"{what}; run again when the machine is quiet", _again(result, _saving(result))
    if outcome is Outcome.NO_BASELINE:
        return "store what has no baseline yet", _again(result, "--save-baseline")
    if outcome is Outcome.INCOMPARABLE or finding.metric == STRUCTURE:
        every = _changed_cases(result) == result.measurements.keys()
        return _INTENDED, _again(result, _ACCEPT) if every else f"{case} {_ACCEPT}"
    if outcome is Outcome.REGRESSION and finding.metric == LOSS and not finding.baseline_date:
        return "mend the loss that is not finite, and measure it again", case
    settled = result.settled.get(finding.case_id)
    if outcome is Outcome.REGRESSION and settled is not None and settled.commit is not None:
        return _to_the_cause(settled, settled.commit, finding.case_id)
    if settled is not None and settled.needed_s is not None and outcome in OPEN:
        minutes = math.ceil(settled.needed_s / 60)
        return "settle it in more time", _again(result, f"--ddp-settle={minutes}m", _saving(result))
    if outcome is Outcome.REGRESSION:
        since = (finding.baseline_date or result.date)[:10]
        why = "see what changed since the baseline"
        return why, f"git log --oneline --since={since} && git diff --stat"
    if outcome is Outcome.MISSES_TARGET:
        file = finding.target.file if finding.target else "the suite file"
        return f"check that the machine is fit for its target in {file}", "ddp-perf doctor"
    if outcome is Outcome.UNDECIDED and finding.metric == NODES:
        return "more nodes, or further sessions of these, show it", _again(result, _APPEND)
    if outcome is Outcome.INVALID and finding.target is not None and not finding.disturbance:
        return f"change targets in {finding.target.file}, and measure it again", case
    if outcome is Outcome.BAD_NODE:
        why = (
            "it is the node, not the code: leave it out of the cluster file, or drain it; run this"
            " on it"
        )
        return why, "ddp-perf doctor"
    if outcome is Outcome.INVALID and finding.metric == LOSS:
        return "make the losses of all launches alike, and measure it again", case
    if outcome is Outcome.INVALID and (finding.disturbance or "").startswith(_CLOCKS):
        return "unlock the clock; or, if it is meant to stay, accept it", _again(result, _ACCEPT)
    if outcome is Outcome.INVALID:
        return "measure it again when the machine is quieter", case
    if outcome is Outcome.UNDECIDED and verdict.more_launches and not is_waiting(finding):
        many = finding.launches + (verdict.likely_launches or verdict.more_launches)
        return "measure more launches", f"{case} --ddp-launches={many}"
    if outcome is Outcome.SUSPECT:
        when = _apart(result, finding)
        return f"see whether a further session agrees{when}", _again(result, _APPEND)
    if is_waiting(finding) or verdict.more_sessions:
        when = _apart(result, finding)
        return f"add a session of code that you trust{when}", _again(result, _APPEND)
    if finding.target is not None:
        return "it is too near to its target; see what disturbs this machine", "ddp-perf doctor"
    return "raise the tolerance, or see what disturbs this machine", "ddp-perf doctor"


def _to_the_cause(settled: Settled, good: str, case_id: str) -> tuple[str, str]:
    """Return the command that leads from a slower case to its cause, after the commit ``good``."""
    if settled.culprit is not None:
        return "see the commit that made it slower", f"git show {settled.culprit.name[:12]}"
    if settled.searched:
        why = f"find the commit since {settled.label}; the search keeps the launches that it has"
        command = ["ddp-perf", "bisect", "--good", good, "--bad", "HEAD", "--case", case_id]
        return why, shlex.join(command)
    return f"see what changed since {settled.label}", f"git diff {good}"


def _changed_cases(result: SuiteResult) -> set[str]:
    """Return the cases whose work differs from that of the baseline."""
    return {
        found.case_id
        for found in result.findings
        if found.verdict.outcome is Outcome.INCOMPARABLE
        or (found.metric == STRUCTURE and status_of(result, found) is Status.RED)
    }


def _saving(result: SuiteResult) -> str:
    """Return the option that stores as this session did; "" if it stored nothing."""
    if result.save_mode is None:
        return ""
    return _ACCEPT if result.save_mode == "accept" else f"--save-baseline={result.save_mode}"


def _apart(result: SuiteResult, finding: Finding) -> str:
    """Return when a further session counts: sessions of one half-day count as one."""
    saved = result.saved.get(finding.case_id)
    newest = finding.baseline_date if finding.sessions == 1 else None
    if saved is not None:
        newest = saved.beside or result.date
    if newest is None:
        return ", 12 hours after the one before"
    counts = datetime.datetime.fromisoformat(newest) + HALF_DAY
    return f", from {counts:%Y-%m-%d %H:%M} UTC on (closer ones count as one)"


def _not_stored(result: SuiteResult) -> set[str]:
    """Return the cases with a metric that was to be stored and still has no baseline."""
    return {
        found.case_id
        for found in result.findings
        if found.verdict.outcome is Outcome.NO_BASELINE and result.is_refused(found)
    }


def _failed(result: SuiteResult) -> Iterator[NextStep]:
    for case_id, measurement in result.measurements.items():
        if measurement.failures:
            command = result.commands.get(case_id) or _again(result)
            yield NextStep(why="mend what failed, and measure that case alone", command=command)


def _ranked(suites: Sequence[SuiteResult]) -> Iterator[tuple[tuple[int, int, bool], NextStep]]:
    """Yield each step that a finding needs, with its rank: the most urgent one has the lowest."""
    statuses = list(Status)
    for result in suites:
        for finding in result.findings:
            step = step_after(result, finding)
            if step is not None:
                status = statuses.index(status_of(result, finding))
                severity = SEVERITY.index(finding.verdict.outcome)
                yield (status, severity, finding.metric == STRUCTURE), step


def _stored(result: SuiteResult) -> Iterator[NextStep]:
    if result.saved and result.save_mode == "missing":
        cases = counted(len(result.saved), "case")
        verb = "is" if len(result.saved) == 1 else "are"
        why = f"{cases} {verb} stored; judge the next session against the baseline"
        yield NextStep(why=why, command=_again(result))


def _committed(result: SuiteResult) -> Iterator[NextStep]:
    if result.saved_structures and not result.saved:
        cases = counted(len(result.saved_structures), "case")
        why = f"the structure of {cases} is stored for every machine; commit it"
        files = sorted(set(result.saved_structures.values()))
        yield NextStep(why=why, command=shlex.join(["git", "add", *files]))


def _forming(result: SuiteResult) -> Iterator[NextStep]:
    few = [found for found in result.findings if 0 < found.sessions < REFERENCE_SESSIONS]
    one_launch = any(len(measured.launches) < 2 for measured in result.measurements.values())
    if few and not result.saved and not one_launch:
        fewest = min(few, key=lambda found: found.sessions)
        why = f"the baseline has {counted(fewest.sessions, 'session')} of {REFERENCE_SESSIONS}"
        when = _apart(result, fewest)
        yield NextStep(why=f"{why}; add one{when}", command=_again(result, _APPEND))
