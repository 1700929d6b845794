"""Notes on cases whose host limits the step time, and on injected slow-downs."""

from __future__ import annotations

import statistics

from ddp_perf.core.measurement import Measurement
from ddp_perf.render.tables import short_names
from ddp_perf.session.result import SuiteResult


def pace_notes(result: SuiteResult) -> list[str]:
    """Return a note on host-bound cases, and one on the measured size of ``compute:N%``.

    Each is left out if no case has it.
    """
    names = short_names(result.measurements)
    bound = [names[id_] for id_, each in result.measurements.items() if _is_host_bound(each)]
    slowed = {names[id_]: _slowdown(each) for id_, each in result.measurements.items()}
    measured = [f"{name} {share:+.1%}" for name, share in slowed.items() if share is not None]
    notes = []
    if bound:
        is_script = any(each.case.script is not None for each in result.measurements.values())
        remedies = "CUDA graphs, torch.compile" if is_script else "cuda_graphs, compile"
        notes.append(
            f"bound by the host: {', '.join(bound)}. Their GPUs wait for Python to launch kernels."
            f" {remedies} or larger batches can help; a faster GPU does not"
        )
    if measured:
        notes.append(f"measured slow-down by injected compute: {', '.join(measured)}")
    return notes


def _is_host_bound(measurement: Measurement) -> bool:
    """Return whether the host limited the step time in at least half of the launches."""
    bound = [launch.host_bound is True for launch in measurement.launches]
    return bool(bound) and 2 * sum(bound) >= len(bound)


def _slowdown(measurement: Measurement) -> float | None:
    """Return the median over launches of the most slowed rank's share, or None without any."""
    launches = [[rank.slowdown for rank in launch.ranks] for launch in measurement.launches]
    each = [[share for share in ranks if share is not None] for ranks in launches]
    return statistics.median(map(max, each)) if each and all(each) else None
