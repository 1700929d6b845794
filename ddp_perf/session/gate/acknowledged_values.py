"""What an acknowledgement covers: a slow-down, or the one value of an exact metric."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ddp_perf.core.baseline import Acknowledgement
from ddp_perf.core.launch import LaunchResult
from ddp_perf.core.metric import LOSS, STRUCTURE
from ddp_perf.core.verdict import Outcome
from ddp_perf.errors import BaselineError
from ddp_perf.session.gate.loss import judge_loss, loss_tolerance, losses_to_store
from ddp_perf.session.gate.structure import counted_flops
from ddp_perf.session.result import SuiteResult


def has_structure_of(launches: Sequence[LaunchResult], given: Acknowledgement) -> bool:
    """Return whether every launch has the acknowledged structure, and its FLOPs."""
    same = all(launch.ranks[0].structure == given.structure for launch in launches)
    return same and given.structure is not None and counted_flops(launches) == given.flops


def has_losses_of(
    launches: Sequence[LaunchResult], given: Acknowledgement, tolerance: float
) -> bool:
    """Return whether the launches have the acknowledged losses, within their tolerance."""
    verdict = judge_loss(launches, given.losses, tolerance=tolerance) if given.losses else None
    return verdict is not None and verdict.outcome is Outcome.PASS


def acknowledged_as_measured(given: Acknowledgement, result: SuiteResult) -> Acknowledgement:
    """Return the acknowledgement with what this session has of its case and metric.

    Raises BaselineError if the session has nothing that could be acknowledged.
    """
    found, measured = result.finding(given.case, given.metric), result.measurements.get(given.case)
    what = f"{given.metric} of {given.case}"
    if found is None or measured is None or not measured.is_complete:
        raise BaselineError(f"--results: the session of {result.date} has no {what}")
    launches = measured.launches
    if given.metric == STRUCTURE:
        structure, flops = launches[0].ranks[0].structure, counted_flops(launches)
        return msgspec.structs.replace(given, structure=structure, flops=flops)
    if given.metric == LOSS:
        losses = losses_to_store(launches, loss_tolerance(measured.case, launches))
        if not losses:
            raise BaselineError(f"--results: {what} is not finite, or differs between launches")
        return msgspec.structs.replace(given, losses=losses)
    if found.verdict.ratio is None:
        raise BaselineError(f"--results: {what} was not compared: {found.verdict.reason}")
    return msgspec.structs.replace(given, ratio=found.verdict.ratio)
