"""Cases of one scaling curve."""

import pytest

from ddp_perf.core.case import Scalar
from ddp_perf.core.scaling_key import RANKS_AND_STRATEGY, curve_label, scaling_key, work_without

WORK: dict[str, Scalar] = {
    "world_size": 2,
    "strategy": "ddp",
    "ddp.bucket_cap_mb": 25,
    "batch_size": 64,
}


def test_cases_that_differ_in_ranks_only_share_a_scaling_key():
    assert scaling_key(WORK) == scaling_key({**WORK, "world_size": 4})
    assert scaling_key(WORK) != scaling_key({**WORK, "batch_size": 128})


def test_cases_of_one_global_batch_share_a_scaling_key():
    strong = {**WORK, "global_batch": 128}

    assert scaling_key(strong) == scaling_key({**strong, "world_size": 4, "batch_size": 32})
    assert scaling_key(strong) != scaling_key({**strong, "global_batch": 256})
    assert scaling_key(strong) != scaling_key(WORK)


def test_work_without_leaves_out_fields_and_groups_of_fields():
    assert work_without(WORK, RANKS_AND_STRATEGY) == {"batch_size": 64}


@pytest.mark.parametrize(
    ("case_id", "ranks", "label"),
    [
        ("mlp-ddp-ws2-b64", 2, "mlp-ddp-b64"),
        ("mlp-ws4-g32", 4, "mlp-g32"),
        ("all_reduce-ws2-1MiB", 2, "all_reduce-1MiB"),
    ],
)
def test_curve_label_leaves_out_the_ranks(case_id, ranks, label):
    assert curve_label(case_id, ranks) == label
