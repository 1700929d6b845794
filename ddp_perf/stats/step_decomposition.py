"""The decomposition of a launch's step into terms, from what each rank measured of itself."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from ddp_perf.core.decomposition import (
    TERMS,
    Decomposition,
    PerStep,
    RankProbe,
    RankShare,
)
from ddp_perf.core.launch import LaunchResult
from ddp_perf.core.measurement import LaunchSummary
from ddp_perf.stats.robust import Floats

Indices = npt.NDArray[np.intp]
_OWN = ("data", "forward", "backward", "optimizer", "idle")  # phases that involve no other rank


def decompose(launch: LaunchResult) -> Decomposition | None:
    """Split the typical step of a launch's probe into terms; return None if a rank has no probe.

    Ranks leave a step together, so the rank whose own work takes longest waits least. A step is
    that rank's work, plus the wait that even this rank has. Its work is split into the work of a
    typical rank (the launch's median rank, the lower of two) and the excess over it, the imbalance.
    The typical rank is the same for all steps: if it were chosen for each step, ranks that are late
    in turn would hide a straggler, and its cost would look like the work of every rank.

    The terms are means over the half of the steps around the median step, so that they add up and a
    single stall changes none of them.
    """
    probes = [rank.probe for rank in launch.ranks if rank.probe is not None]
    if len(probes) < len(launch.ranks) or not _alike(probes):
        return None
    own = np.sum([_by_rank(probes, phase) for phase in _OWN], axis=0)
    waits = _by_rank(probes, "waiting") + _by_rank(probes, "exposed")
    steps = np.max(own + waits, axis=0)
    middle = _middle(steps)
    own_s = own[:, middle].mean(axis=1)
    usual = np.argsort(own_s)[(len(probes) - 1) // 2]  # the typical rank
    terms = {phase: float(_by_rank(probes, phase)[usual, middle].mean()) for phase in _OWN}
    for term, values in _backward(probes[usual]).items():
        terms[term] = float(values[middle].mean()) + (terms["idle"] if term == "idle" else 0.0)
    terms["imbalance"] = float(own.max(axis=0)[middle].mean() - own_s[usual])
    terms["exposed"] = float(waits.min(axis=0)[middle].mean())
    return Decomposition(
        terms={term: terms[term] for term in TERMS},
        step_s=float(steps[middle].mean()),
        communication_s=_communication_s(probes),
        host_reads=max(probe.host_reads for probe in probes),
        allocator_retries=max(probe.allocator_retries for probe in probes),
        sees_communication=all(probe.sees_communication for probe in probes),
        ranks=tuple(
            RankShare(
                own_s=float(own_s[rank]),
                waits_s=float(waits[rank][middle].mean()),
                last_share=float((own.argmax(axis=0) == rank).mean()),
            )
            for rank in range(len(probes))
        ),
    )


def _backward(probe: RankProbe) -> dict[str, Floats]:
    """Split one rank's backward, step by step, into computing, idle time and interference.

    A thread that communicates may use the core while the backward idles, which costs nothing, or
    take it from the backward. So the run without communication determines the computing, and the
    idle time of the backward itself (the least of it, because neighbours only add to it). Beyond
    both, the time that no thread of the rank used is idle, and the rest is interference.
    """
    wall = np.array(probe.phases.backward)
    used = np.array(probe.backward_cpu) if probe.backward_cpu else wall
    if not probe.unsynchronised_backward:
        idle = np.maximum(wall - used, 0.0)
        return {"backward": wall - idle, "idle": idle, "interference": np.zeros_like(wall)}
    computing = _middle_mean(probe.unsynchronised_backward)
    own_idle = (
        float(np.quantile(probe.unsynchronised_idle, 0.25)) if probe.unsynchronised_idle else 0.0
    )
    contention = np.maximum(wall - used - own_idle, 0.0)
    return {
        "backward": np.full_like(wall, computing),
        "idle": own_idle + contention,
        "interference": wall - computing - own_idle - contention,
    }


def _alike(probes: Sequence[RankProbe]) -> bool:
    """Return whether every rank probed the same number of steps, at least one."""
    lengths = {len(steps) for probe in probes for steps in _phases(probe)}
    return len(lengths) == 1 and lengths != {0}


def _phases(probe: RankProbe) -> list[PerStep]:
    phases = probe.phases
    return [getattr(phases, name) for name in phases.__struct_fields__]


def _by_rank(probes: Sequence[RankProbe], phase: str) -> Floats:
    """Return the seconds of a phase, ranks × steps."""
    return np.array([getattr(probe.phases, phase) for probe in probes])


def _middle(values: Floats) -> Indices:
    """Return the indices of the middle half: without a quarter of the values at each end."""
    cut = len(values) // 4
    return np.argsort(values)[cut : len(values) - cut]


def _middle_mean(values: Sequence[float]) -> float:
    array = np.array(values)
    return float(array[_middle(array)].mean())


def _communication_s(probes: Sequence[RankProbe]) -> float | None:
    """Return the communication time of the slowest rank, averaged over rounds.

    A collective ends when its last rank leaves it.
    """
    rounds = [probe.communication for probe in probes]
    is_alone = len(probes) == 1 and probes[0].emulated_ranks is None
    if is_alone or not all(rounds):
        return None
    return _middle_mean([max(times) for times in zip(*rounds, strict=True)])


def typical_step(rows: Iterable[LaunchSummary]) -> Decomposition | None:
    """Return the typical step of the launches that have terms, or None if no launch has them."""
    return typical([row.decomposition for row in rows if row.decomposition is not None])


def typical(launches: Sequence[Decomposition]) -> Decomposition | None:
    """Return the medians over launches, term by term, or None if there is no launch."""
    if not launches:
        return None
    communication = [one.communication_s for one in launches if one.communication_s is not None]
    return Decomposition(
        terms={term: statistics.median(one.terms[term] for one in launches) for term in TERMS},
        step_s=statistics.median(one.step_s for one in launches),
        communication_s=statistics.median(communication) if communication else None,
        host_reads=statistics.median_low(one.host_reads for one in launches),
        allocator_retries=statistics.median(one.allocator_retries for one in launches),
        sees_communication=all(one.sees_communication for one in launches),
        ranks=tuple(
            RankShare(
                own_s=statistics.median(one.own_s for one in of_rank),
                waits_s=statistics.median(one.waits_s for one in of_rank),
                last_share=statistics.fmean(one.last_share for one in of_rank),
            )
            for of_rank in zip(*(one.ranks for one in launches), strict=True)
        ),
    )
