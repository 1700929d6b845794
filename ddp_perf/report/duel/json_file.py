"""``duel.json``: the verdicts of a duel for programs."""

from __future__ import annotations

from typing import Any

import msgspec

from ddp_perf.duel.values import Duel
from ddp_perf.render.units import to_json
from ddp_perf.report.duel.rows import DuelReport, duel_report


def duel_json(duel: Duel) -> str:
    """Return the verdicts with their figures, what differs, and the figures of each pair."""
    return to_json(duel_report(duel))


def duel_schema() -> dict[str, Any]:
    """Return the JSON Schema of duel.json."""
    return msgspec.json.schema(DuelReport)
