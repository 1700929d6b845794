"""The metrics of a case that are gated."""

from __future__ import annotations

import pytest

from ddp_perf.core.case import Tolerances
from ddp_perf.core.metric import EFFICIENCY, METRICS, STEP_TIME, gated_metrics, is_explained
from tests.builders import make_case


def test_only_metrics_with_a_tolerance_are_gated():
    case = make_case(tolerances=Tolerances(tail=None, peak_memory=None))

    assert gated_metrics(case) == ["step_time", "efficiency"]


def test_efficiency_is_not_gated_without_a_single_rank_case():
    assert gated_metrics(make_case(single=None)) == ["step_time", "tail", "peak_memory"]


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_step_time_and_efficiency_are_explained_by_the_terms_of_a_step(metric):
    assert is_explained(metric.name) is (metric in (STEP_TIME, EFFICIENCY))
