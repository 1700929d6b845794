"""The steps of a script: where they end, and what its step times do not show."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence

from ddp_perf.core.launch import ScriptFacts
from ddp_perf.core.measurement import Measurement
from ddp_perf.render.units import counted
from ddp_perf.session.result import SuiteResult

_MOST_FILES = 5  # that a note names


def script_facts(measurement: Measurement) -> ScriptFacts | None:
    """Return the facts over all ranks and launches, or None if no script was measured."""
    each = [
        rank.script
        for launch in measurement.launches
        for rank in launch.ranks
        if rank.script is not None
    ]
    if not each:
        return None
    return ScriptFacts(
        steps_at=", ".join(dict.fromkeys(facts.steps_at for facts in each)),
        micro_steps=(
            min(facts.micro_steps[0] for facts in each),
            max(facts.micro_steps[1] for facts in each),
        ),
        optimizers=max(facts.optimizers for facts in each),
        skipped=max(facts.skipped for facts in each),
        own_files=_all(facts.own_files for facts in each),
        changed_files=_all(facts.changed_files for facts in each),
    )


def _all(files: Iterable[Iterable[str]]) -> tuple[str, ...]:
    return tuple(sorted({*itertools.chain.from_iterable(files)}))


def step_line(measurement: Measurement) -> str | None:
    """Return the line of a script at which its steps end, and what a step consists of."""
    facts = script_facts(measurement)
    if facts is None:
        return None
    return f"{facts.steps_at} ({_passes(facts)}, {counted(facts.optimizers, 'optimizer')})"


def script_notes(result: SuiteResult, names: Mapping[str, str]) -> list[str]:
    """Return a note for each property of the steps that a reader of their times must know."""
    found: dict[str, list[str]] = {}
    for case_id, measurement in result.measurements.items():
        facts = script_facts(measurement)
        for note in _notes(facts) if facts is not None else ():
            found.setdefault(note, []).append(names[case_id])
    return [f"{', '.join(cases)}: {note}" for note, cases in found.items()]


def _notes(facts: ScriptFacts) -> Iterable[str]:
    least, most = facts.micro_steps
    if least != most:
        yield f"a step has {_passes(facts)} ({facts.steps_at}): its steps are not alike"
    if facts.optimizers > 1:
        yield (
            f"{facts.optimizers} optimizers step; a step is one of the first, or of `steps_by:`"
            f" ({facts.steps_at})"
        )
    if facts.skipped:
        yield (
            f"a GradScaler skipped up to {counted(facts.skipped, 'step')} of a launch: they have no"
            " step of the optimizer"
        )
    if facts.changed_files:
        yield (
            f"the script CHANGED {counted(len(facts.changed_files), 'file')} OUTSIDE of its private"
            f" directory, as each launch may do again: {_some(facts.changed_files)}; switch that"
            " off by its args, or let them be in another place"
        )
    if facts.own_files:
        yield (
            f"the script wrote {counted(len(facts.own_files), 'file')}, removed after the launch:"
            f" {_some(facts.own_files)}"
        )


def _some(files: Sequence[str]) -> str:
    more = len(files) - _MOST_FILES
    return ", ".join(files[:_MOST_FILES]) + (f" and {more} more" if more > 0 else "")


def _passes(facts: ScriptFacts) -> str:
    least, most = facts.micro_steps
    if least == most:
        return "1 backward pass" if most == 1 else f"{most} backward passes"
    return f"{least} to {most} backward passes"
