"""The result of one suite while it is settled: verdicts by pairs, and their causes."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from ddp_perf.baselines.store import BaselineStore
from ddp_perf.core.baseline import Baseline
from ddp_perf.core.case import Case
from ddp_perf.core.measurement import Finding
from ddp_perf.core.metric import (
    CPU_TIME,
    EFFICIENCY,
    METRICS,
    MISSING_READINGS,
    STEP_TIME,
    metric_spec,
    metric_title,
)
from ddp_perf.core.note import NoteKind
from ddp_perf.core.verdict import Culprit, DuelOutcome, Outcome, Settled, Verdict
from ddp_perf.duel.case_run import PairFigures, figures_of, log_ratios, with_metric
from ddp_perf.duel.run import MARGIN
from ddp_perf.duel.sides.virtual_environment import is_installed, parse_requirements
from ddp_perf.duel.touched import Project
from ddp_perf.duel.values import CaseDuel, Duel, MetricDuel
from ddp_perf.errors import SideError
from ddp_perf.render.units import change_range, counted, percent_change, short_percent
from ddp_perf.session.result import SuiteResult
from ddp_perf.settle.references import (
    SERVERS_S,
    Changed,
    Reference,
    Suspect,
    reference_of,
    references,
    what_changed,
)
from ddp_perf.stats.interval import half_width
from ddp_perf.stats.rule.error_rate import settled_outcome, suspicion
from ddp_perf.system.git import CodeState
from ddp_perf.work.changes import grows
from ddp_perf.work.text import MOST_LINES, change_sentence, place_text

# The differences of a slower case from the reference, in words.


_MOST_CHANGES = 3


def causes_of(one: CaseDuel, changed: Sequence[str]) -> tuple[str, ...]:
    """Return the edited lines, the options, the structure and the work that differ.

    ``changed`` are the lines that differ since the reference. They are named where counts show no
    line that does more, as of a step that only waits.
    """
    return tuple(_causes(one, changed))


def _causes(one: CaseDuel, changed: Sequence[str]) -> Iterator[str]:
    yield from (f"edited line: {place_text(site)}: {site.text}" for site in one.lines[:MOST_LINES])
    if not one.lines:
        yield from (f"changed line: {line}" for line in changed[:MOST_LINES])
        if len(changed) > MOST_LINES:
            yield f"and {counted(len(changed) - MOST_LINES, 'further changed line')}"
    yield from (f"changed option: {option}" for option in one.options)
    if one.structure is not None:
        yield f"structure: {one.structure}"
    yield from (
        f"{'more' if grows(change) else 'other'} work: {change_sentence(change)}"
        for change in (one.work or ())[:_MOST_CHANGES]
    )


# The verdicts of a case after the second stage: by pairs of launches, or since nothing changed.


_TIMED = {metric.name for metric in METRICS}
_RULED_OUT = 0.005  # one-sided error of what a PASS rules out, as in the gate


def is_settleable(finding: Finding) -> bool:
    """Return whether launches of both codes can decide the finding, and nobody acknowledged it."""
    if finding.value is None and finding.metric in MISSING_READINGS:
        return False  # this machine has no counter for it: pairs have no reading either
    outcome = finding.verdict.outcome
    return finding.metric in _TIMED and outcome.compares_sessions and not finding.is_expected


def suspicion_of(findings: Iterable[Finding]) -> float | None:
    """Return how suspicious the findings of a case are; None: they need no second stage."""
    found = [
        suspicion(one.verdict, one.tolerance)
        for one in findings
        if is_settleable(one) and one.tolerance is not None
    ]
    return max((one for one in found if one is not None), default=None)


def unchanged_verdict(finding: Finding, reference: Reference, changed: Changed) -> Finding:
    """Return the finding on code that cannot be slower, because it is that of the reference.

    A session that is slower by its own rule stays red: training is slower, by the machine. One that
    was red before is mended: the slower code is gone.
    """
    verdict = finding.verdict
    if not is_settleable(finding):
        return finding
    by_itself = finding.by_itself or verdict.outcome
    if verdict.outcome is Outcome.REGRESSION and by_itself is Outcome.REGRESSION:
        machine = f" ({', '.join(changed.machine)})" if changed.machine else ""
        facts = reference.label, machine
        return _decided(finding, Outcome.REGRESSION, NoteKind.SLOWER_MACHINE, *facts)
    if not (verdict.outcome.is_open or verdict.outcome is Outcome.REGRESSION):
        return finding
    return _decided(finding, Outcome.PASS, NoteKind.SAME_CODE, reference.label)


def machine_texts(findings: Iterable[Finding], changed: Changed) -> tuple[str, ...]:
    """Return what of unchanged code seems slower, which the machine is, and what it has new."""
    slower = [
        f"{metric_title(one.metric)} {one.verdict.ratio - 1:+.1%}".replace("%", " %")
        for one in findings
        if is_settleable(one) and one.tolerance is not None
        if one.verdict.ratio is not None and one.verdict.ratio - 1 >= one.tolerance / 2
    ]
    return (*slower, *changed.machine)


def settled_verdicts(
    findings: Sequence[Finding], case: CaseDuel, figures: Sequence[PairFigures], label: str
) -> list[Finding]:
    """Return the findings of a case as the pairs of both codes decide them."""
    by_metric = {one.metric: one for one in case.metrics}
    settled = [
        _settled_finding(finding, deciding, figures, label)
        if is_settleable(finding) and (deciding := _deciding(finding.metric, by_metric)) is not None
        else finding
        for finding in findings
    ]
    return [_by_its_numerator(finding, settled) for finding in settled]


def _deciding(metric: str, by_metric: dict[str, MetricDuel]) -> MetricDuel | None:
    """Return the verdict on the metric. CPU time may decide in the place of the step time."""
    one, other = by_metric.get(metric), by_metric.get(CPU_TIME.name)
    if metric == STEP_TIME.name and one is not None and not one.decides:
        return other if other is not None and other.decides else one
    return one


def _settled_finding(
    finding: Finding, one: MetricDuel, figures: Sequence[PairFigures], label: str
) -> Finding:
    paired, tolerance = one.verdict, finding.tolerance or one.tolerance
    logs = log_ratios(with_metric(figures, one.metric))
    upper = _upper(logs)
    if paired.outcome is DuelOutcome.SLOWER and not one.decides:
        paired = msgspec.structs.replace(paired, outcome=DuelOutcome.UNDECIDED)
    outcome = settled_outcome(paired, finding.verdict.outcome, tolerance)
    if outcome.is_open and upper is not None and upper < 1 + 2 * tolerance:
        outcome = Outcome.PASS
    elif outcome is Outcome.INVALID:
        outcome = Outcome.UNDECIDED
    by = f", by {metric_title(one.metric)}" if one.metric != finding.metric else ""
    verdict = Verdict(
        outcome=outcome,
        reason=f"{_reason(one, tolerance, label)}{by}",
        ratio=paired.ratio,
        interval=paired.interval,
        upper=upper,
        minimum_detectable=paired.minimum_detectable,
    )
    by_itself = finding.by_itself or finding.verdict.outcome
    return msgspec.structs.replace(finding, verdict=verdict, by_itself=by_itself, notes=())


def _reason(one: MetricDuel, tolerance: float, label: str) -> str:
    paired = one.verdict
    pairs = f"{counted(paired.pairs, 'pair')} of launches of today's code and that of {label}"
    if paired.ratio is None:
        return f"{pairs} {'is' if paired.pairs == 1 else 'are'} too few"
    change = percent_change(paired.ratio)
    if paired.interval is not None and paired.confidence is not None:
        interval = change_range(paired.interval)
        change += f" ({_confidence(paired.confidence)} interval {interval})"
    return f"{change} in {pairs}; the tolerance is {short_percent(tolerance)}"


def _confidence(share: float) -> str:
    """Write a confidence without rounding it up to certainty: ``99.97 %``."""
    return f"{math.floor(1e4 * share) / 100:g} %"


def _upper(logs: Sequence[float]) -> float | None:
    """Return the one-sided 99.5 % upper bound of the ratio, or None with fewer than two pairs."""
    if len(logs) < 2:
        return None
    margin = half_width(statistics.stdev(logs), len(logs), _RULED_OUT)
    return math.exp(statistics.fmean(logs) + margin)


def _by_its_numerator(finding: Finding, settled: Sequence[Finding]) -> Finding:
    """Return a scaling cost without pairs of one rank as PASS, if the step itself is no slower."""
    if finding.metric != EFFICIENCY.name or not finding.verdict.outcome.is_open:
        return finding
    name = metric_spec(finding.metric).numerator
    step = next((one for one in settled if one.metric == name), None)
    if step is None or not step.verdict.outcome.is_good:
        return finding
    return _decided(finding, Outcome.PASS, NoteKind.NUMERATOR, step.reason)


def _decided(finding: Finding, outcome: Outcome, kind: NoteKind, *facts: str) -> Finding:
    found = finding.noted(
        kind, *facts, outcome=outcome, more_sessions=None, assumed_sd=None, chance=None
    )
    by_itself = finding.by_itself or finding.verdict.outcome
    return msgspec.structs.replace(found, by_itself=by_itself)


# The result of one suite while it is settled: what is noted of each case.


class SettledSuite:
    """The result of one suite while it is settled."""

    def __init__(
        self,
        result: SuiteResult,
        baseline: Baseline,
        project: Project,
        store: BaselineStore,
        *,
        state: CodeState | None,
        blind: bool,
    ) -> None:
        self.result = result
        self._baseline = baseline
        self._state = state  # of today's code; None: it is unknown
        self._blind = blind  # that nothing changed is no verdict
        self._project = project
        self._store = store

    def keep(self, result: SuiteResult) -> None:
        self.result = result

    def without_unchanged(self, cases: Sequence[Case]) -> list[Case]:
        """Note the cases whose code is that of the level's first session; return the others."""
        others = []
        for case in cases:
            known = self._references(case)
            changed = self._changed(case, known[0]) if known else None
            if changed is not None and changed.is_nothing and not self._blind:
                self._note_unchanged(case, known[0], changed)
            else:
                others.append(case)
        return others

    def suspects(self, cases: Sequence[Case]) -> list[Suspect]:
        """Return the cases that launches must decide. One that cannot be launched is noted."""
        found = []
        for case in cases:
            suspicion = suspicion_of(self._findings(case.id))
            if suspicion is None or not self.result.gates(case.id):  # its times are only reported
                continue
            known = self._references(case)
            if self._is_red_as_before(case):
                self._note_red_as_before(case, known)
            elif suspect := self._suspect(case, suspicion, known):
                found.append(suspect)
        return found

    def _references(self, case: Case) -> list[Reference]:
        stored = self._baseline.cases.get(case.id)
        return [] if stored is None else references(stored, self._store)

    def _changed(self, case: Case, reference: Reference) -> Changed:
        return what_changed(case, reference, self._state, self.result.environment, self._project)

    def _suspect(self, case: Case, suspicion: float, known: Sequence[Reference]) -> Suspect | None:
        """Return the case with the references that can run, or note why there is none."""
        problem = _not_here(case)
        obstacles = [one.obstacle(self._project.root) for one in known] if problem is None else []
        runnable = [one for one, why in zip(known, obstacles, strict=False) if why is None]
        skipped = [
            f"{one.label} cannot run: {why}"
            for one, why in zip(known, obstacles, strict=False)
            if why is not None
        ]
        if not runnable:
            why = problem or next(iter(skipped), "no stored session has the state of its code")
            self._note(case.id, Settled(reference=None, problem=why))
            return None
        changed = self._changed(case, runnable[0])
        if changed.are_packages:
            spec = ",".join(changed.packages)
            if not _is_at_hand(spec):
                self._note(case.id, _not_installed(runnable[0], changed, spec))
                return None
            runnable = [msgspec.structs.replace(runnable[0], packages=spec)]
        launches = self.result.measurements[case.id].launches
        return Suspect(
            case=case,
            suspicion=suspicion,
            launch_s=statistics.median(launch.wall_s for launch in launches),
            references=tuple(runnable),
            changed=changed,
            skipped=tuple(skipped),
        )

    def _is_red_as_before(self, case: Case) -> bool:
        """Return whether the case is red, and its code is that of the newest red session."""
        red = self._baseline.cases[case.id].history(STEP_TIME.name).regressed
        step = self.result.finding(case.id, STEP_TIME.name)
        if not red or step is None or step.verdict.outcome is not Outcome.REGRESSION:
            return False
        newest = reference_of(red[-1], self._store)
        return newest is not None and self._changed(case, newest).is_nothing

    def _note_red_as_before(self, case: Case, known: Sequence[Reference]) -> None:
        """Note the reference of a case that is red as before: the search for its commit goes on."""
        runnable = (one for one in known if one.obstacle(self._project.root) is None)
        reference = next(runnable, None)
        if reference is None or _not_here(case) is not None:
            return
        changed = self._changed(case, reference)
        settled = Settled(
            reference=reference.date,
            label=reference.label,
            commit=None if changed.are_packages else reference.state.commit,
            changed=changed.texts,
            as_before=True,
        )
        self._note(case.id, settled)

    def _note_unchanged(self, case: Case, reference: Reference, changed: Changed) -> None:
        own = self._findings(case.id)
        settled = Settled(
            reference=reference.date,
            label=reference.label,
            commit=reference.state.commit,
            unchanged=True,
            machine=machine_texts(own, changed),
        )
        self._note(case.id, settled)
        self._replace(case.id, [unchanged_verdict(one, reference, changed) for one in own])

    def _findings(self, case_id: str) -> list[Finding]:
        return [one for one in self.result.findings if one.case_id == case_id]

    def _note(self, case_id: str, settled: Settled) -> None:
        self.result = msgspec.structs.replace(
            self.result, settled={**self.result.settled, case_id: settled}
        )

    def _replace(self, case_id: str, findings: Sequence[Finding]) -> None:
        self.result = _with_findings(self.result, case_id, findings)

    def with_duel(self, duel: Duel, batch: Sequence[Suspect], reference: Reference) -> SuiteResult:
        """Return the result with what the duel shows so far."""
        suspects = {one.case.id: one for one in batch}
        by_id = {one.id: one for one in duel.cases}
        pairs = sum(len(one.pairs) for one in duel.cases)
        pair_s = (duel.measured_s or duel.wall_s) / max(1, pairs)
        result = self.result
        for one in duel.cases:
            suspect = suspects.get(one.id)
            if suspect is None or not one.metrics or one.failures:
                continue
            figures = figures_of(one, by_id.get(one.cases.b.single or ""))
            own = [found for found in self.result.findings if found.case_id == one.id]
            findings = settled_verdicts(own, one, figures, reference.label)
            settled = _settled(suspect, reference, one, findings, pair_s=pair_s, duel=duel)
            explained = {one.id: one.explanation} if one.explanation is not None else {}
            result = msgspec.structs.replace(
                _with_findings(result, one.id, findings),
                settled={**result.settled, one.id: settled},
                explanations={**result.explanations, **explained},
            )
        return result

    def after(
        self,
        duel: Duel | None,
        batch: Sequence[Suspect],
        *,
        problem: str | None,
        needed_s: float | None,
        lacks_suite: bool = False,
    ) -> list[Suspect]:
        """Return the cases whose reference does not run, each with the next one.

        ``lacks_suite`` states that the reference has none of them.
        """
        again = []
        by_id = {one.id: one for one in duel.cases} if duel is not None else {}
        missing = {one.case_id: one.reason for one in duel.missing} if duel is not None else {}
        for suspect in batch:
            case_id = suspect.case.id
            settled = self.result.settled.get(case_id)
            if settled is not None and settled.pairs:
                if problem is not None and by_id[case_id].outcome is DuelOutcome.UNDECIDED:
                    self._note(case_id, msgspec.structs.replace(settled, problem=problem))
                continue
            why = _why_not(by_id.get(case_id), missing.get(case_id), problem)
            skipped = (*suspect.skipped, f"{suspect.references[0].label} does not run: {why}")
            older = suspect.references[1:]
            of_reference = lacks_suite or _is_of_reference(by_id.get(case_id), missing.get(case_id))
            if older and of_reference and needed_s is None:
                again.append(msgspec.structs.replace(suspect, references=older, skipped=skipped))
                continue
            self._note(
                case_id,
                Settled(
                    reference=suspect.references[0].date,
                    label=suspect.references[0].label,
                    changed=suspect.changed.texts,
                    needed_s=needed_s,
                    problem=why if not of_reference else skipped[-1],
                ),
            )
        return again

    def note_search(self, case_id: str, culprit: Culprit | None) -> None:
        settled = self.result.settled[case_id]
        self._note(case_id, msgspec.structs.replace(settled, searched=True, culprit=culprit))

    def without_time(self, waiting: Sequence[Suspect], *, spent_s: float) -> None:
        """Note the cases that the time did not suffice for, and the time that all would need."""
        looks_s = sum(one.first_look_s for one in waiting)
        for one in waiting:
            settled = Settled(
                reference=one.references[0].date,
                label=one.references[0].label,
                changed=one.changed.texts,
                needed_s=spent_s + MARGIN * (SERVERS_S + looks_s),
                problem="there was no time for it",
            )
            self._note(one.case.id, settled)


def worst_red(result: SuiteResult) -> tuple[Case, str] | None:
    """Return the slowest red case that has no search yet, with its reference's commit, or None."""
    found: list[tuple[float, Case, str]] = []
    for case_id, settled in result.settled.items():
        step = result.finding(case_id, STEP_TIME.name)
        if step is None or step.verdict.outcome is not Outcome.REGRESSION:
            continue
        if not (settled.pairs or settled.as_before) or settled.searched:
            continue
        if settled.commit and step.verdict.ratio:
            case = result.measurements[case_id].case
            found.append((step.verdict.ratio, case, settled.commit))
    return max(found, key=lambda one: one[0])[1:] if found else None


def _with_findings(result: SuiteResult, case_id: str, findings: Sequence[Finding]) -> SuiteResult:
    new = {one.metric: one for one in findings}
    kept = tuple(new[one.metric] if one.case_id == case_id else one for one in result.findings)
    return msgspec.structs.replace(result, findings=kept)


def _settled(
    suspect: Suspect,
    reference: Reference,
    one: CaseDuel,
    findings: Sequence[Finding],
    *,
    pair_s: float,
    duel: Duel,
) -> Settled:
    more = [m.verdict.more_pairs for m in one.metrics if m.decides and m.verdict.more_pairs]
    is_red = any(found.verdict.outcome is Outcome.REGRESSION for found in findings)
    return Settled(
        reference=reference.date,
        label=reference.label,
        commit=reference.commit,
        changed=suspect.changed.texts,
        pairs=len(one.pairs),
        seconds=len(one.pairs) * pair_s,
        lines=one.lines if is_red else (),
        causes=causes_of(one, suspect.changed.lines) if is_red else (),
        needed_s=MARGIN * (duel.wall_s + max(more) * pair_s) if more else None,
        problem="; ".join(suspect.skipped) or None,
    )


def _not_here(case: Case) -> str | None:
    """Return why both codes of a case cannot be launched in turn on this machine."""
    if case.launcher != "forkserver" or case.nodes > 1:
        return "a stored session's code is launched on this machine alone, by the forkserver"
    return None


def _is_at_hand(spec: str) -> bool:
    try:
        return is_installed(parse_requirements(spec))
    except SideError:  # there is no cache
        return False


def _not_installed(reference: Reference, changed: Changed, spec: str) -> Settled:
    return Settled(
        reference=reference.date,
        label=reference.label,
        commit=reference.state.commit,
        changed=changed.texts,
        problem=f"only packages changed, and nothing is downloaded to settle it: ddp-perf duel"
        f" {spec} compares them",
    )


def _why_not(one: CaseDuel | None, missing: str | None, problem: str | None) -> str:
    if one is not None and one.failures:
        failed = one.failures[0]
        return f"side {failed.side}: {failed.failure.detail}"
    return missing or problem or "it has no verdict"


def _is_of_reference(one: CaseDuel | None, missing: str | None) -> bool:
    """Return whether the code of the reference is what does not run."""
    if one is not None and one.failures:
        return {failed.side for failed in one.failures} == {"A"}
    return missing is not None
