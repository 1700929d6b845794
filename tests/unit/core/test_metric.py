"""Which metrics of a case spend the session's error budget."""

from __future__ import annotations

import pytest

from ddp_perf.core.case import Tolerances
from ddp_perf.core.metric import EFFICIENCY, METRICS, STEP_TIME, gated_metrics, is_explained
from tests.builders import make_case


def test_only_what_has_a_tolerance_is_gated():
    case = make_case(tolerances=Tolerances(tail=None, peak_memory=None))

    assert gated_metrics(case) == ["step_time", "efficiency"]


def test_without_a_one_rank_leg_there_is_no_efficiency_to_gate():
    assert gated_metrics(make_case(single=None)) == ["step_time", "tail", "peak_memory"]


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_step_time_and_scaling_are_what_the_terms_of_a_step_explain(metric):
    assert is_explained(metric.name) is (metric in (STEP_TIME, EFFICIENCY))
