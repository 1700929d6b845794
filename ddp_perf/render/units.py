"""Durations as people write and read them."""

from __future__ import annotations

import re

from ddp_perf.errors import ConfigError

_SECONDS = {"s": 1, "m": 60, "h": 3600}


def parse_duration(text: str) -> float:
    """Seconds of ``90s``, ``10m`` or ``1.5h``. Raises ConfigError with the form expected."""
    match = re.fullmatch(r"([0-9]{1,6}(?:\.[0-9]{1,3})?)([smh])", text)
    seconds = float(match[1]) * _SECONDS[match[2]] if match else 0.0
    if seconds == 0:
        raise ConfigError(f"{text!r} is no time to measure, as in 90s, 10m or 1h")
    return seconds


def describe_duration(seconds: float) -> str:
    """To the precision that an estimate has: ``90 s``, ``10 min``."""
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
