"""The metrics of a case that are gated, and what disturbs them."""

from __future__ import annotations

import pytest

from ddp_perf.core.case import Tolerances
from ddp_perf.core.metric import (
    CPU_TIME,
    EFFICIENCY,
    ENERGY,
    METRICS,
    PEAK_MEMORY,
    STEP_TIME,
    STRUCTURE,
    gated_metrics,
    is_explained,
    metric_spec,
)
from tests.builders import make_case

EVERY = Tolerances(energy=0.05)  # the others have a tolerance by default


def test_only_metrics_with_a_tolerance_are_gated():
    case = make_case(tolerances=Tolerances(tail=None, cpu_time=None, peak_memory=None))

    assert gated_metrics(case) == ["step_time", "efficiency"]


def test_efficiency_is_not_gated_without_a_single_rank_case():
    gated = gated_metrics(make_case(single=None))

    assert gated == ["step_time", "tail", "cpu_time", "peak_memory"]


def test_the_cpu_time_is_gated_only_on_the_cpu_tier():
    """The host of a GPU waits for it in a loop: its CPU time is not the cost of its code."""
    of_gpu = set(gated_metrics(make_case(tier="gpu", tolerances=EVERY)))

    assert of_gpu == {metric.name for metric in METRICS} - {CPU_TIME.name}
    assert CPU_TIME.name in gated_metrics(make_case(tier="cpu", tolerances=EVERY))
    assert ENERGY.name in of_gpu


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_times_and_efficiency_are_explained_by_the_terms_of_a_step(metric):
    assert is_explained(metric.name) is (metric in (STEP_TIME, EFFICIENCY, CPU_TIME))


@pytest.mark.parametrize("metric", [*(metric.name for metric in METRICS), STRUCTURE])
def test_a_wait_disturbs_times_a_slow_clock_cpu_time_and_nothing_memory(metric):
    undisturbed = {PEAK_MEMORY.name: None, STRUCTURE: None, CPU_TIME.name: "clock"}

    assert metric_spec(metric).disturbed_by == undisturbed.get(metric, "waits")
