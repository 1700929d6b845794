"""Audits of a gate for tests."""

from __future__ import annotations

from typing import Any

from ddp_perf.core.verdict import GateAudit, Outcome


def make_audit(size: float = 0.04, *, day: int = 1, **changes: Any) -> GateAudit:
    """Return an audit that found a slow-down of this size, or nothing where there is none."""
    fields: dict[str, Any] = {
        "date": f"2026-01-{day:02}T03:04:05+00:00",
        "suite": "quick",
        "case_id": "mlp-ddp-fp32-ws2-b64",
        "tier": "cpu",
        "accelerator": "cpu-some-2c-host",
        "host": "host",
        "commit": "0123456789ab",
        "torch": "2.13.0",
        "seed": 42,
        "size": size,
        "tolerance": 0.02,
        "outcome": Outcome.REGRESSION if size else Outcome.PASS,
        "ratio": 1 + size,
        "interval": (1 + size - 0.005, 1 + size + 0.005),
        "stage": "sessions",
        "seconds": 12.3,
    }
    return GateAudit(**{**fields, **changes})
