"""The findings of the second stage of a session, as lines of text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ddp_perf.core.settled import Settled
from ddp_perf.core.verdict import Outcome
from ddp_perf.render.culprits import culprit_text
from ddp_perf.render.units import counted, describe_duration
from ddp_perf.report.terminal.explanation import explanation_lines
from ddp_perf.session.result import SuiteResult

_GREEN = (Outcome.PASS, Outcome.IMPROVEMENT)


def settled_notes(result: SuiteResult) -> dict[str, str]:
    """Return one sentence for each case that the second stage has something to say of, by id."""
    notes = {}
    for case_id, settled in result.settled.items():
        note = "; ".join(_parts(settled, is_green=_is_green(result, case_id)))
        if note:
            notes[case_id] = note
    return notes


def cause_notes(result: SuiteResult, names: Mapping[str, str]) -> list[str]:
    """Return what each slower case does otherwise than the code that it was settled beside."""
    return [
        f"{names[case_id]}: {cause}"
        for case_id in result.settled
        for cause in settled_causes(result, case_id)
    ]


def settled_causes(result: SuiteResult, case_id: str) -> tuple[str, ...]:
    """Return the commit, if it was found, and what the slower case does otherwise."""
    settled = result.settled.get(case_id)
    if settled is None:
        return ()
    commit = () if settled.culprit is None else (culprit_text(settled.culprit),)
    return (*commit, *settled.causes)


def why_slower(result: SuiteResult, case_id: str) -> tuple[str, ...]:
    """Return all that is known of why the case got slower, as lines."""
    why = result.explanations.get(case_id)
    return (*settled_causes(result, case_id), *(explanation_lines(why) if why else ()))


def unkept_lines(result: SuiteResult) -> list[str]:
    """Return why the stored session cannot run again, if something was stored."""
    if not result.saved or result.unkept is None:
        return []
    return [f"the code of this session cannot be run again by later ones: {result.unkept}"]


def _is_green(result: SuiteResult, case_id: str) -> bool:
    own = (one for one in result.asserted_findings() if one.case_id == case_id)
    return all(one.verdict.outcome in _GREEN for one in own)


def _parts(settled: Settled, *, is_green: bool) -> Iterator[str]:
    if settled.unchanged:
        yield f"unchanged: code, packages and options are those of {settled.label}"
        if settled.machine:
            yield f"the machine: {', '.join(settled.machine)}"
        return
    if settled.pairs:
        yield (
            f"settled beside {settled.label} by {counted(settled.pairs, 'pair')} of launches in"
            f" {describe_duration(settled.seconds)}"
        )
    elif settled.as_before:
        yield "its code is that of the newest red session, so it was not launched again"
    elif settled.problem:
        yield f"not settled: {settled.problem}"
    if settled.pairs and settled.problem:
        yield settled.problem
    if is_green:
        return
    if settled.changed:
        since = settled.label if settled.as_before else "then"
        yield f"changed since {since}: {', '.join(settled.changed)}"
    if settled.needed_s is not None:
        yield f"about {describe_duration(settled.needed_s)} would be enough"
