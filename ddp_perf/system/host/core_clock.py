"""Heat and clock of the cores, from /sys. Most virtual machines do not report them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

_THROTTLE_COUNTS = ("core_throttle_count", "package_throttle_count")
_KHZ_PER_MHZ = 1000


def heat_events(cores: Iterable[int], root: Path = Path("/")) -> int | None:
    """Return how often heat throttled the cores or their packages since boot; None: unknown."""
    counts = [
        _number(_directory(core, root) / "thermal_throttle" / name)
        for core in cores
        for name in _THROTTLE_COUNTS
    ]
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def clock_ratio(cores: Iterable[int], root: Path = Path("/")) -> float | None:
    """Return the largest clock ÷ base frequency of the cores (1.3: turbo); None: unknown."""
    ratios = [_clock_ratio(_directory(core, root)) for core in cores]
    return max((ratio for ratio in ratios if ratio is not None), default=None)


def _clock_ratio(core: Path) -> float | None:
    clock_khz = _number(core / "cpufreq" / "scaling_cur_freq")
    base_khz = _number(core / "cpufreq" / "base_frequency")  # Intel's driver
    if base_khz is None and (base_mhz := _number(core / "acpi_cppc" / "nominal_freq")):
        base_khz = base_mhz * _KHZ_PER_MHZ
    return clock_khz / base_khz if clock_khz and base_khz else None


def _directory(core: int, root: Path) -> Path:
    return root / f"sys/devices/system/cpu/cpu{core}"


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):  # ValueError: "<unknown>"
        return None
