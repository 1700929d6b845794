"""Older versions of the results file, brought to the newest one."""

from __future__ import annotations

import re
from typing import Any

_SAVED = re.compile(r"stored \((?P<mode>missing|append|accept)\) in (?P<path>.*)", re.DOTALL)
_REFUSED = "not stored: "


def from_version_1(data: dict[str, Any]) -> None:
    """Change the raw data of version 1 to version 2, in place.

    Version 1 named the stored sessions of a finding ``nights``, stored sentences on what was
    saved and what was refused, and stored the conditions that all ranks share with the launch.
    """
    for suite in data["suites"]:
        measured = (measurement["launches"] for measurement in suite["measurements"].values())
        for launches in (*measured, *suite.get("explaining", {}).values()):
            for launch in launches:
                _move_conditions(launch)
        for finding in suite.get("findings", ()):
            if "nights" in finding:
                finding["sessions"] = finding.pop("nights")
        saved, refused = suite.get("saved", {}), suite.get("not_saved", {})
        suite["saved"] = {case_id: _saved(text, suite) for case_id, text in saved.items()}
        suite["not_saved"] = {case_id: _refused(text) for case_id, text in refused.items()}


def _move_conditions(launch: dict[str, Any]) -> None:
    """Move the conditions of a launch to each of its ranks. A known figure of a rank stays."""
    shared = launch.pop("conditions", {})
    for rank in launch["ranks"]:
        own = rank.get("conditions", {})
        known = {name: value for name, value in own.items() if value is not None}
        rank["conditions"] = {**own, **shared, **known}


def _saved(text: str, suite: dict[str, Any]) -> dict[str, str]:
    if found := _SAVED.fullmatch(text):
        return found.groupdict()
    return {"path": suite["baseline_path"], "mode": suite["save_mode"]}


def _refused(text: str) -> dict[str, str]:
    return {"reason": text.removeprefix(_REFUSED)}
