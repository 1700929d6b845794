"""Older versions of a baseline file, brought to the newest one."""

from __future__ import annotations

from typing import Any

from ddp_perf.baselines.layout import columns, environment_name


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
