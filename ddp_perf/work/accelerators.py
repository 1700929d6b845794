"""The accelerators that changed work is modelled on."""

from __future__ import annotations

from collections.abc import Iterable

from ddp_perf.baselines.store import BaselineStore
from ddp_perf.core.baseline import Baseline
from ddp_perf.core.case import Case
from ddp_perf.stats.hardware import memory_bandwidth

DEFAULT = ("a100-sxm4-80gb", "h100-80gb-hbm3")


def accelerators_of(
    cases: Iterable[Case], machine: str, store: BaselineStore
) -> dict[str, tuple[str, ...]]:
    """Return the accelerators for each suite, by its name.

    The one of this machine, if its peaks are known; else those that have figures of the suite,
    measured or published; else DEFAULT. ``machine`` is the name of this machine's baseline file.
    """
    by_suite: dict[str, list[Case]] = {}
    for case in cases:
        by_suite.setdefault(case.suite, []).append(case)
    if memory_bandwidth(machine) is not None:
        return dict.fromkeys(by_suite, (machine,))
    known = [key for key in store.accelerators() if memory_bandwidth(key) is not None]
    baselines = {key: store.load(key) for key in known}
    return {
        suite: tuple(key for key in known if _has_figures(baselines[key], members)) or DEFAULT
        for suite, members in by_suite.items()
    }


def _has_figures(baseline: Baseline, cases: Iterable[Case]) -> bool:
    workloads = {table.work["workload"] for table in baseline.published if "workload" in table.work}
    return any(case.id in baseline.cases or case.workload in workloads for case in cases)
