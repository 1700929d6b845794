"""Questions about an item of pytest: its case, its metric, and the process that runs it."""

from __future__ import annotations

import pytest

from ddp_perf.core.case import Case
from ddp_perf.core.metric import STRUCTURE


def case_of(item: pytest.Item) -> Case | None:
    """Return the case that ``ddp_case`` gives to the item, or None if it takes none."""
    callspec = getattr(item, "callspec", None)
    case = callspec.params.get("ddp_case") if callspec else None
    return case if isinstance(case, Case) else None


def asserted_metric(node: pytest.Item | pytest.Function) -> str:
    """Return the metric of the ``ddp_metric`` marker; without one, the structure."""
    marker = node.get_closest_marker("ddp_metric")
    return str(marker.args[0]) if marker else STRUCTURE


def in_xdist_worker(config: pytest.Config) -> bool:
    """Return whether pytest-xdist runs this process beside others."""
    return hasattr(config, "workerinput")
