"""Acknowledgements cover a slow-down, or the one value of an exact metric."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from ddp_perf.core.baseline import Acknowledgement, Baseline
from ddp_perf.core.measurement import Finding, Measurement
from ddp_perf.core.metric import EXACT, LOSS, STRUCTURE
from ddp_perf.core.verdict import Outcome
from ddp_perf.errors import BaselineError
from ddp_perf.session.gate.exact import counted_flops
from ddp_perf.session.gate.loss import judge_loss, loss_tolerance, losses_to_store
from ddp_perf.session.result import SuiteResult


def with_acknowledged_value(
    finding: Finding, measurements: Mapping[str, Measurement], baseline: Baseline
) -> Finding:
    """Return the finding; one on an exact metric states whether its value is the acknowledged one.

    A structure is the same with its FLOPs, and losses are within their tolerance.
    """
    given = baseline.acknowledgement(finding.case_id, finding.metric)
    if given is None or finding.metric not in EXACT:
        return finding
    launches = measurements[finding.case_id].launches
    if finding.metric == STRUCTURE:
        same = given.structure is not None and counted_flops(launches) == given.flops
        same = same and all(one.ranks[0].structure == given.structure for one in launches)
    else:
        assert finding.tolerance is not None  # of the loss: it was judged
        verdict = judge_loss(launches, given.losses, tolerance=finding.tolerance)
        same = verdict.outcome is Outcome.PASS
    return msgspec.structs.replace(finding, as_acknowledged=same)


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
