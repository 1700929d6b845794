"""Questions about an item of pytest: its case, its metric, and the process that runs it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from ddp_perf.core.case import Case
from ddp_perf.core.metric import EXACT, METRICS, NODES, STRUCTURE
from ddp_perf.errors import did_you_mean

_KNOWN = [*EXACT, NODES, *(metric.name for metric in METRICS)]


def case_of(item: pytest.Item) -> Case | None:
    """Return the case that ``ddp_case`` gives to the item, or None if it takes none."""
    callspec = getattr(item, "callspec", None)
    case = callspec.params.get("ddp_case") if callspec else None
    return case if isinstance(case, Case) else None


def fixtures_of(item: pytest.Item) -> Sequence[str]:
    return item.fixturenames if isinstance(item, pytest.Function) else ()


def is_counted(item: pytest.Item) -> bool:
    """Return whether the item counts the step of its case, and measures nothing."""
    return "ddp_counted" in fixtures_of(item)


def counted_case(item: pytest.Item) -> Case | None:
    """Return the case whose step the item counts, or None if it counts none."""
    return case_of(item) if is_counted(item) else None


def asserted_metric(node: pytest.Item | pytest.Function) -> str:
    """Return the metric of ``ddp_target``, or of the ``ddp_metric`` marker; else the structure.

    Raises CollectError for a name that is no metric.
    """
    callspec = getattr(node, "callspec", None)
    target = callspec.params.get("ddp_target") if callspec else None
    if isinstance(target, str):
        return target
    marker = node.get_closest_marker("ddp_metric")
    metric = str(*marker.args[:1]) if marker else STRUCTURE
    if metric not in _KNOWN:
        raise pytest.Collector.CollectError(
            f"{node.nodeid}: ddp_metric: {metric!r} is not one of {', '.join(_KNOWN)}"
            f"{did_you_mean(metric, _KNOWN)}"
        )
    return metric


def in_xdist_worker(config: pytest.Config) -> bool:
    """Return whether pytest-xdist runs this process beside others."""
    return hasattr(config, "workerinput")
