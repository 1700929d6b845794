"""A launch's step as a sum of terms, from what each rank saw of itself."""

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
_OWN = ("data", "forward", "backward", "optimizer", "idle")  # phases that no other rank enters


def decompose(launch: LaunchResult) -> Decomposition | None:
    """The typical step of the launch's probe; None where a rank has none.

    Ranks leave a step together: the one whose own work takes longest waits least. So a step is
    that rank's work, and the wait that even it has. Its work is told as a typical rank's (of the
    launch the median one's, the lower of two) and how far it lies beyond: the imbalance. The
    typical rank is one for all steps: were it each step's own, ranks that come late in turn
    would hide a straggler, and what it costs would look like everybody's work.

    Terms are means over the half of the steps around the median, so that they add up and a
    single stall moves none of them.
    """
    probes = [rank.probe for rank in launch.ranks if rank.probe is not None]
    if len(probes) < len(launch.ranks) or not _alike(probes):
        return None
    own = np.sum([_by_rank(probes, phase) for phase in _OWN], axis=0)
    waits = _by_rank(probes, "waiting") + _by_rank(probes, "exposed")
    steps = np.max(own + waits, axis=0)
    middle = _middle(steps)
    of_ranks = own[:, middle].mean(axis=1)
    usual = np.argsort(of_ranks)[(len(probes) - 1) // 2]  # the typical rank
    terms = {phase: float(_by_rank(probes, phase)[usual, middle].mean()) for phase in _OWN}
    for term, values in _backward(probes[usual]).items():
        terms[term] = float(values[middle].mean()) + (terms["idle"] if term == "idle" else 0.0)
    terms["imbalance"] = float(own.max(axis=0)[middle].mean() - of_ranks[usual])
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
                own_s=float(of_ranks[rank]),
                waits_s=float(waits[rank][middle].mean()),
                last_share=float((own.argmax(axis=0) == rank).mean()),
            )
            for rank in range(len(probes))
        ),
    )


def _backward(probe: RankProbe) -> dict[str, Floats]:
    """One rank's backward, step by step: computing, idle, and slower for communication beside it.

    A thread that communicates may use the core while the backward rests, which costs nothing, or
    take it from the backward. So computing is told by the run without communication, and so is
    how long it rests by itself (the least of it: neighbours only add). Beyond both is idle what no
    thread of the rank used, and interference the rest.
    """
    wall = np.array(probe.phases.backward)
    used = np.array(probe.backward_cpu) if probe.backward_cpu else wall
    if not probe.unsynchronised_backward:
        idle = np.maximum(wall - used, 0.0)
        return {"backward": wall - idle, "idle": idle, "interference": np.zeros_like(wall)}
    computing = _middle_mean(probe.unsynchronised_backward)
    rests = (
        float(np.quantile(probe.unsynchronised_idle, 0.25)) if probe.unsynchronised_idle else 0.0
    )
    foreign = np.maximum(wall - used - rests, 0.0)
    return {
        "backward": np.full_like(wall, computing),
        "idle": rests + foreign,
        "interference": wall - computing - rests - foreign,
    }


def _alike(probes: Sequence[RankProbe]) -> bool:
    """Every rank looked at the same steps, at one at least."""
    lengths = {len(steps) for probe in probes for steps in _phases(probe)}
    return len(lengths) == 1 and lengths != {0}


def _phases(probe: RankProbe) -> list[PerStep]:
    phases = probe.phases
    return [getattr(phases, name) for name in phases.__struct_fields__]


def _by_rank(probes: Sequence[RankProbe], phase: str) -> Floats:
    """Ranks × steps."""
    return np.array([getattr(probe.phases, phase) for probe in probes])


def _middle(values: Floats) -> Indices:
    """Where the middle half lies: without a quarter of them at each end."""
    cut = len(values) // 4
    return np.argsort(values)[cut : len(values) - cut]


def _middle_mean(values: Sequence[float]) -> float:
    array = np.array(values)
    return float(array[_middle(array)].mean())


def _communication_s(probes: Sequence[RankProbe]) -> float | None:
    """Of the slowest rank, round by round: a collective is over when the last one has left it."""
    rounds = [probe.communication for probe in probes]
    if len(probes) == 1 or not all(rounds):
        return None
    return _middle_mean([max(times) for times in zip(*rounds, strict=True)])


def typical_step(rows: Iterable[LaunchSummary]) -> Decomposition | None:
    """Return the typical step of the launches that have terms, or None if no launch has them."""
    return typical([row.decomposition for row in rows if row.decomposition is not None])


def typical(launches: Sequence[Decomposition]) -> Decomposition | None:
    """Medians over launches, term by term; None without any."""
    if not launches:
        return None
    alone = [one.communication_s for one in launches if one.communication_s is not None]
    return Decomposition(
        terms={term: statistics.median(one.terms[term] for one in launches) for term in TERMS},
        step_s=statistics.median(one.step_s for one in launches),
        communication_s=statistics.median(alone) if alone else None,
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
