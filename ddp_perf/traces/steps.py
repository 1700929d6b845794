"""The split of each annotated step: its length and its exposed communication."""

from __future__ import annotations

from ddp_perf.traces.intervals import covered, merged
from ddp_perf.traces.split import US
from ddp_perf.traces.timeline import Timeline
from ddp_perf.traces.values import StepSplit


def steps_of(timeline: Timeline) -> tuple[StepSplit, ...]:
    """Return the steps in order of their start; empty if the trace has no ProfilerStep."""
    steps = timeline.steps
    if not steps.numbers:
        return ()
    step, computation = timeline.step(), merged(timeline.of("computation"))
    rows = {kind: timeline.kinds == kind for kind in ("computation", "communication")}
    found = []
    for i, number in enumerate(steps.numbers):
        of_step = {
            kind: merged(timeline.intervals.where((step == i) & of_kind))
            for kind, of_kind in rows.items()
        }
        communication = of_step["communication"]
        hidden = float(covered(communication, computation).sum())
        found.append(
            StepSplit(
                number=number,
                step_s=float(steps.intervals.lengths[i]) * US,
                computation_s=of_step["computation"].length * US,
                communication_s=communication.length * US,
                exposed_communication_s=max(communication.length - hidden, 0.0) * US,
            )
        )
    return tuple(found)
