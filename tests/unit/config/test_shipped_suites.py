"""The suites that ship: the published experiment exactly, and its size for a core."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ddp_perf.config.loading import find_suites, load_cases, load_suite
from ddp_perf.config.overrides import Overrides
from ddp_perf.config.schema import suite_schema
from ddp_perf.core.strategy import DdpOptions

CONFIGS = Path(__file__).parents[3] / "bench_configs"


def test_mlp_scaling_is_the_published_experiment():
    cases = load_cases([CONFIGS / "mlp_scaling.yaml"], Overrides())

    assert [(case.batch_size, case.world_size) for case in cases] == [
        *[(256, 1), (256, 2), (256, 4), (256, 8)],
        *[(4096, 1), (4096, 2), (4096, 4), (4096, 8)],
    ]
    for case in cases:
        assert (case.tier, case.workload, case.precision) == ("gpu", "mlp", "fp32")
        assert case.model == {
            "input_dim": 4096,
            "hidden_dim": 4096,
            "output_dim": 2048,
            "num_layers": 2,
        }
        assert (case.schedule.measured, case.schedule.steps) == (55, 60)


def test_mlp_scaling_has_the_published_ddp_options():
    single, *parallel = load_cases([CONFIGS / "mlp_scaling.yaml"], Overrides(batch_sizes=(256,)))

    assert single.ddp is None
    assert {case.ddp for case in parallel} == {
        DdpOptions(
            bucket_cap_mb=50,
            broadcast_buffers=False,
            static_graph=True,
            gradient_as_bucket_view=True,
        )
    }


def test_cpu_quick_is_the_same_experiment_sized_for_a_core():
    quick, full = load_suite(CONFIGS / "cpu_quick.yaml"), load_suite(CONFIGS / "mlp_scaling.yaml")

    assert (quick.tier, quick.world_sizes, len(quick.batch_sizes)) == ("cpu", [1, 2], 2)
    assert (quick.workload, quick.ddp, quick.steps) == (full.workload, full.ddp, full.steps)
    assert quick.tolerances.step_time >= 0.10  # less could not be held on a shared CPU


def test_all_shipped_suites_can_be_run_together():
    assert len(load_cases(find_suites(CONFIGS), Overrides())) >= 12


def test_the_published_schema_is_the_one_that_validates():
    path = CONFIGS / "schema.json"
    if not path.exists():
        pytest.skip("schema.json is not published yet: python ci/schemas.py")
    assert json.loads(path.read_text(encoding="utf-8")) == json.loads(json.dumps(suite_schema()))
