"""Older versions of a baseline file, brought to the newest one."""

from __future__ import annotations

from typing import Any

from ddp_perf.baselines.layout import columns, environment_name
from ddp_perf.core.metric import METRICS
from ddp_perf.core.session import CONTROL, MEDIANS


def baseline_from_version_1(data: dict[str, Any]) -> None:
    """Change the raw data of version 1 to version 2, in place.

    Version 1 repeated the whole environment in each session of each case, and the names of the
    metrics in each launch.
    """
    environments = {}
    for case in data.setdefault("cases", {}).values():
        for session in case["sessions"]:
            environment = session["environment"]
            session["commit"] = environment.pop("commit")
            session["environment"] = environment_name(environment)
            environments[session["environment"]] = environment
            session["launches"] = columns(session["launches"])
            session["terms"] = columns(session.get("terms", ()))
    data["environments"] = environments


def baseline_from_version_2(data: dict[str, Any]) -> None:
    """Change the raw data of version 2 to version 3, in place.

    The figures of a launch in version 2 are of its median step. There are no steps to compute the
    level from, so these figures stay, and get names of their own: nothing is compared with them.
    """
    for case in data.get("cases", {}).values():
        case["first"] = _with_medians(case["first"])
        for session in case["sessions"]:
            session["launches"] = _with_medians(session["launches"])
            session["verdicts"] = _with_medians(session.get("verdicts", {}))
    units = {metric.name: metric.unit for metric in METRICS} | {CONTROL: "s"}
    data["units"] = {**units, **{MEDIANS[name]: units[name] for name in MEDIANS}}


def baseline_from_version_3(data: dict[str, Any]) -> None:
    """Leave the raw data of version 3 as they are: version 4 only adds losses and FLOPs' torch."""


def _with_medians(by_metric: dict[str, Any]) -> dict[str, Any]:
    """Return the values by metric, those of the median by its name."""
    return {MEDIANS.get(metric, metric): value for metric, value in by_metric.items()}
