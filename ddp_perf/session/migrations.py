"""Older versions of the results file, brought to the newest one."""

from __future__ import annotations

import re
from typing import Any

_SAVED = re.compile(r"stored \((?P<mode>missing|append|accept)\) in (?P<path>.*)", re.DOTALL)
_REFUSED = "not stored: "


def from_version_1(data: dict[str, Any]) -> None:
    """Change the raw data of version 1 to version 2, in place.

    Version 1 named the stored sessions of a finding ``nights``, and stored sentences on what was
    saved and what was refused.
    """
    for suite in data["suites"]:
        for finding in suite.get("findings", ()):
            if "nights" in finding:
                finding["sessions"] = finding.pop("nights")
        saved, refused = suite.get("saved", {}), suite.get("not_saved", {})
        suite["saved"] = {case_id: _saved(text, suite) for case_id, text in saved.items()}
        suite["not_saved"] = {case_id: _refused(text) for case_id, text in refused.items()}


def _saved(text: str, suite: dict[str, Any]) -> dict[str, str]:
    if found := _SAVED.fullmatch(text):
        return found.groupdict()
    return {"path": suite["baseline_path"], "mode": suite["save_mode"]}


def _refused(text: str) -> dict[str, str]:
    return {"reason": text.removeprefix(_REFUSED)}
