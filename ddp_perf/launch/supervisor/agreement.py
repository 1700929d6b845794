"""The agreement of ranks that trained together, over all nodes."""

from __future__ import annotations

import collections
from collections.abc import Sequence

from ddp_perf.core.launch import LaunchFailure, LaunchRequest, Placement, RankResult


def check_agreement(request: LaunchRequest, results: Sequence[RankResult]) -> LaunchFailure | None:
    """Return a failure if ranks that trained together disagree, or None if they agree.

    They disagree if their parameters differ, or if they share a GPU without a request to do so.
    """
    # The verdict on the structure states that a rank has none.
    digested = [result for result in results if "digest" not in result.missing]
    digests = collections.Counter(result.digest for result in digested)
    devices = collections.Counter(_device(result.placement) for result in results)
    own_gpus = request.case.tier == "gpu" and not request.shared_gpu
    if len(digests) > 1:
        common, holders = digests.most_common(1)[0]
        # With two ranks it is unknown which one is wrong.
        differing = [one.placement.rank for one in digested if one.digest != common]
        culprit = differing[0] if holders > len(digested) / 2 else None
        detail = "parameters differ from the other ranks' after the last step"
        if request.case.script is not None:
            detail += "; let all ranks begin with the same ones, and average every gradient"
    elif own_gpus and len(devices) < len(results):
        places = [result.placement for result in results]
        culprit = next(place.rank for place in places if devices[_device(place)] > 1)
        detail = (
            "shares its GPU with another rank; give each rank its own GPU with CUDA_VISIBLE_DEVICES"
        )
    else:
        return None
    return LaunchFailure(
        case_id=request.case.id,
        round=request.round,
        kind="disagreement",
        rank=culprit,
        detail=detail,
    )


def _device(place: Placement) -> tuple[str | None, str]:
    return place.host, place.device_id
