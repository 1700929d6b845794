"""Which metrics of a case spend the session's error budget."""

from __future__ import annotations

from ddp_perf.core.case import Tolerances
from ddp_perf.core.metric import gated_metrics
from tests.builders import make_case


def test_only_what_has_a_tolerance_is_gated():
    case = make_case(tolerances=Tolerances(tail=None, peak_memory=None))

    assert gated_metrics(case) == ["step_time", "efficiency"]


def test_without_a_one_rank_leg_there_is_no_efficiency_to_gate():
    assert gated_metrics(make_case(single=None)) == ["step_time", "tail", "peak_memory"]
