"""The shipped structure of a suite is the one that its ranks have."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from ddp_perf.baselines.store import BaselineStore
from ddp_perf.config.loading import load_cases
from ddp_perf.config.overrides import Overrides
from ddp_perf.core.launch import LaunchRequest, LaunchResult
from ddp_perf.session.gate.structure import compare_structure

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", ["cpu_quick", "cpu/text_transformer_agnews", "cpu/fsdp_scaling"])
def test_a_step_has_the_shipped_structure_of_its_suite(launcher, name):
    overrides = Overrides(world_sizes=(2,), steps=1, warmup=0)
    case = load_cases([ROOT / "bench_configs" / f"{name}.yaml"], overrides)[0]
    stored = BaselineStore(ROOT / "baselines").load_structures(case.suite)[case.id]

    outcome = launcher.launch(LaunchRequest(case=case, round=0))

    assert isinstance(outcome, LaunchResult), str(outcome)
    assert compare_structure([outcome], stored.structure).outcome == "PASS"


def test_ddp_on_three_ranks_has_the_shipped_structure_of_two(launcher):
    """`judge_structure` assumes this of plain DDP at any world size."""
    overrides = Overrides(world_sizes=(2,), steps=1, warmup=0)
    case, *_ = load_cases([ROOT / "bench_configs" / "cpu_quick.yaml"], overrides)
    stored = BaselineStore(ROOT / "baselines").load_structures(case.suite)[case.id]

    outcome = launcher.launch(
        LaunchRequest(case=msgspec.structs.replace(case, world_size=3), round=0)
    )

    assert isinstance(outcome, LaunchResult), str(outcome)
    assert compare_structure([outcome], stored.structure).outcome == "PASS"


def test_smaller_buckets_are_a_regression_of_the_structure(launcher):
    case = load_cases([ROOT / "bench_configs" / "cpu_quick.yaml"], Overrides(steps=1, warmup=0))[1]
    smaller = msgspec.structs.replace(case.ddp, bucket_cap_mb=0.5)
    case = msgspec.structs.replace(case, ddp=smaller)
    stored = BaselineStore(ROOT / "baselines").load_structures(case.suite)[case.id]

    outcome = launcher.launch(LaunchRequest(case=case, round=0))

    verdict = compare_structure([outcome], stored.structure)
    assert verdict.outcome == "REGRESSION"
    assert "buckets 6,297,600 → " in verdict.reason
