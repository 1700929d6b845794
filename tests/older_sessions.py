"""Sessions as an older ddp-perf stored them."""

from __future__ import annotations

from typing import Any

import msgspec

from ddp_perf.core.metric import CPU_TIME
from ddp_perf.core.session import MEDIANS, Session


def with_medians(*sessions: Session) -> list[Session]:
    """Return the sessions as version 2 of a baseline file has them: with medians for levels."""
    return [
        msgspec.structs.replace(
            session,
            launches=tuple(map(of_medians, session.launches)),
            verdicts=of_medians(session.verdicts),
        )
        for session in sessions
    ]


def of_medians(by_metric: dict[str, Any]) -> dict[str, Any]:
    """Return the values by metric of version 2, which had no CPU time."""
    return {
        MEDIANS.get(name, name): value for name, value in by_metric.items() if name != CPU_TIME.name
    }
