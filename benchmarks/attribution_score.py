"""The score of recorded sessions: what the gate and the explanation answered, and what was right.

Each session is judged and explained from its recording alone by the product's own code, as `pytest`
would have done on the day after the unchanged sessions. The name of a recording's file is the only
place that says what was done to it.
"""

from __future__ import annotations

import collections
import datetime
import enum
import itertools
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from benchmarks.attribution_causes import BY_NAME, UNCHANGED, InjectedCause
from benchmarks.attribution_session import EXPLAIN_BUDGET_S, read_recording
from ddp_perf.baselines.save import merge, too_noisy
from ddp_perf.core.baseline import LEAST_SESSIONS, Baseline
from ddp_perf.core.metric import STEP_TIME
from ddp_perf.core.verdict import Explanation, Outcome
from ddp_perf.selftest.curve import interval_text
from ddp_perf.session.gate.disturbance import prevailing_disturbance
from ddp_perf.session.gate.judge_suite import JudgingContext, judge_suite
from ddp_perf.session.measure.further_launches import Explainer
from ddp_perf.session.result import SuiteResult
from ddp_perf.session.store_baseline import new_sessions, refusal
from ddp_perf.stats.interval import share_found
from tests.builders import FakeLauncher
from tests.suites import make_bench

BASE = "base"  # the cause, in a file's name, of the sessions that are the baseline
_FIRST_DAY = datetime.datetime(2026, 1, 1, tzinfo=datetime.timezone.utc)


class Grade(enum.Enum):
    """What an explanation's first cause is worth. Chance may explain a likely one."""

    RIGHT = "right"
    LIKELY_RIGHT = "likely, right"
    UNEXPLAINED = "unexplained"
    LIKELY_WRONG = "likely, wrong"
    WRONG = "wrong"


class Recording(msgspec.Struct, frozen=True, kw_only=True):
    """A recorded session, and what was done to it."""

    cause: str
    size: str
    result: SuiteResult


class Answered(msgspec.Struct, frozen=True, kw_only=True):
    """The product's answers to a session."""

    cause: str
    size: str
    outcome: Outcome  # of the step time
    change: float  # of the median step time, as a fraction of the baseline's level
    disturbance: str | None = None  # in words: why it is INVALID
    explanation: Explanation  # shown to a user only if the outcome is REGRESSION

    @property
    def first(self) -> str:
        return answer_of(self.explanation)

    @property
    def grade(self) -> Grade:
        return grade(self.explanation, BY_NAME[self.cause].right)

    @property
    def is_disturbed_by_cause(self) -> bool:
        """True if the gate says INVALID because of what was done to the session."""
        words, named = BY_NAME[self.cause].disturbance, self.disturbance
        return words is not None and named is not None and words in named


def grade(explanation: Explanation, right: Sequence[str]) -> Grade:
    """Grade the first cause of an explanation by the answers that are right."""
    answer, causes = answer_of(explanation), explanation.causes
    if not causes or causes[0].kind == "unexplained":
        return Grade.UNEXPLAINED
    if causes[0].likely:
        return Grade.LIKELY_RIGHT if answer in right else Grade.LIKELY_WRONG
    return Grade.RIGHT if answer in right else Grade.WRONG


def answer_of(explanation: Explanation) -> str:
    """Return the first cause in words, with its rank, or with the phase that grew most."""
    if not explanation.causes:
        return "nothing"
    first = explanation.causes[0]
    if first.rank is not None:
        return f"{first.kind} of rank {first.rank}"
    if first.kind != "compute":
        return first.kind
    phases = [
        term for term in explanation.terms if term.name in ("forward", "backward", "optimizer")
    ]
    return f"compute: {max(phases, key=lambda term: term.change).name}"


def read_recordings(folder: Path) -> list[Recording]:
    """Read ``NUMBER.CAUSE.SIZE.json.gz``, in the order of measuring."""
    found = []
    for path in sorted(folder.glob("*.json.gz")):
        _, cause, size, *_ = path.name.split(".")
        found.append(Recording(cause=cause, size=size, result=read_recording(path)))
    return found


def answer_all(recordings: Iterable[Recording]) -> list[Answered]:
    """Judge and explain each session against the base sessions, and exit if they are too few."""
    recordings = list(recordings)
    baseline = _baseline([one.result for one in recordings if one.cause == BASE])
    stored = [len(case.sessions) for case in baseline.cases.values()]
    if sum(stored) < LEAST_SESSIONS:
        raise SystemExit(
            f"{sum(stored)} base sessions can be a baseline, and {LEAST_SESSIONS} are needed:"
            " measure on"
        )
    return [_answered(one, baseline) for one in recordings if one.cause != BASE]


def _baseline(results: Sequence[SuiteResult]) -> Baseline:
    """Return the baseline of the sessions that the product would store.

    They are dated a day apart: the product counts sessions of one day as one.
    """
    baseline = Baseline(
        accelerator=results[0].environment.accelerator_key if results else "", units={}
    )
    for result, date in zip(results, _dates(), strict=False):
        for new in new_sessions(msgspec.structs.replace(result, date=date)):
            disturbed = prevailing_disturbance(new.case.id, result.measurements)
            if not (disturbed or refusal(new, None, "append") or too_noisy(new)):
                baseline = merge(baseline, [new], mode="append", reason=None)
    return baseline


def _dates() -> Iterator[str]:
    return ((_FIRST_DAY + datetime.timedelta(days=day)).isoformat() for day in itertools.count())


def _answered(recording: Recording, baseline: Baseline) -> Answered:
    (case_id,) = recording.result.measurements
    stored = baseline.cases[case_id]
    dates = itertools.islice(_dates(), len(stored.sessions), None)
    result = msgspec.structs.replace(recording.result, date=next(dates))
    context = JudgingContext(
        baseline=baseline, baseline_path="", environment=result.environment, alpha=result.alpha
    )
    findings = judge_suite(result.measurements, result.summaries, context)
    (step,) = (finding for finding in findings if finding.metric == STEP_TIME.name)
    recorded = iter(result.explaining[case_id])
    replay = FakeLauncher(lambda request: next(recorded))
    bench = make_bench(Path(), replay)
    explainer = Explainer(baseline=baseline, bench=bench, budget_s=EXPLAIN_BUDGET_S)
    explanation = explainer.explained(result, case_id).explanations[case_id]
    return Answered(
        cause=recording.cause,
        size=recording.size,
        outcome=step.verdict.outcome,
        change=step.value / step.baseline - 1,
        disturbance=step.excuse and step.excuse.facts[0],
        explanation=explanation,
    )


def report(answered: Sequence[Answered]) -> Iterator[str]:
    """Yield the lines of the score: each cause, then the totals with 95 % intervals."""
    slowed = [one for one in answered if one.cause != UNCHANGED]
    for cause in BY_NAME.values():
        yield from _of_cause(cause, [one for one in slowed if one.cause == cause.name])
    red = [one for one in slowed if one.outcome is Outcome.REGRESSION]
    yield ""
    yield _rate("judged REGRESSION", len(red), len(slowed))
    invalid = [one for one in slowed if one.outcome is Outcome.INVALID]
    meant = sum(one.is_disturbed_by_cause for one in invalid)
    yield f"judged INVALID: {len(invalid)}; {meant} of them name what was done"
    yield from _totals("explained, because it is a REGRESSION", red)
    others = [one for one in slowed if one.outcome not in (Outcome.REGRESSION, Outcome.INVALID)]
    yield from _totals("not red: its explanation, had it been asked for", others)
    yield ""
    unchanged = [one for one in answered if one.cause == UNCHANGED]
    false = sum(one.outcome is Outcome.REGRESSION for one in unchanged)
    yield _rate("unchanged, and judged REGRESSION", false, len(unchanged))


def _of_cause(cause: InjectedCause, answered: Sequence[Answered]) -> Iterator[str]:
    """Yield a line for each size of a cause: a row of the confusion matrix."""
    for size in cause.sizes:
        sessions = [one for one in answered if one.size == size]
        if sessions:
            changes = ", ".join(f"{100 * one.change:+.0f}" for one in sessions)
            answers = collections.Counter(_answer_text(one) for one in sessions)
            counts = ", ".join(f"{text} {count}" for text, count in sorted(answers.items()))
            right = ", ".join(cause.right)
            yield f"{cause.name} {size} ({changes} %; right: {right}): {counts}"


def _answer_text(one: Answered) -> str:
    if one.outcome is Outcome.INVALID:
        return one.outcome.value
    return f"{one.outcome.value} → {one.first} ({one.grade.value})"


def _totals(title: str, answered: Sequence[Answered]) -> Iterator[str]:
    """Yield the share of each grade, and of the causes: sessions of one cause are alike."""
    yield f"{title} ({len(answered)}):"
    grades = collections.Counter(one.grade for one in answered)
    for value in Grade:
        yield "    " + _rate(value.value, grades[value], len(answered))
    causes: dict[str, list[bool]] = {}
    for one in answered:
        causes.setdefault(one.cause, []).append(one.grade in (Grade.RIGHT, Grade.LIKELY_RIGHT))
    most = sum(2 * sum(right) > len(right) for right in causes.values())
    yield "    " + _rate("causes that are right in most sessions", most, len(causes))


def _rate(what: str, found: int, trials: int) -> str:
    return f"{what}: {found} of {trials} (95 %: {interval_text(share_found(found, trials))})"
