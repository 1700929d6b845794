"""The published steps that the cost model is compared with."""

from __future__ import annotations

import pytest

from ddp_perf.baselines.store import BaselineStore
from tests.quality.work_cost import published_steps


@pytest.fixture
def steps(request):
    store = BaselineStore(request.config.rootpath / "baselines")
    return {
        (one.accelerator, one.table.name, one.case.world_size, one.case.batch_size): one
        for one in published_steps(store)
    }


def test_a_step_is_of_the_tables_own_work(steps):
    tf32 = steps["a100-sxm4-80gb", "resnet50-tf32", 1, 256]
    assert (tf32.case.workload, tf32.case.precision) == ("resnet50", "tf32")
    assert tf32.case.strategy == "none"
    assert steps["v100-sxm2-16gb", "resnet50-amp", 8, 256].case.strategy == "ddp"


def test_a_step_is_as_stated_or_follows_from_the_throughput_of_all_ranks(steps):
    assert steps["v100-pcie-16gb", "mlp-scaling", 2, 4096].step_s == pytest.approx(0.11424)
    assert steps["a100-sxm4-80gb", "resnet50-amp", 8, 256].step_s == pytest.approx(8 * 256 / 16621)


def test_gpus_without_known_peaks_and_other_workloads_are_left_out(steps):
    assert {accelerator for accelerator, *_ in steps} == {
        "a100-sxm4-80gb",
        "t4",
        "v100-pcie-16gb",
        "v100-sxm2-16gb",
        "v100-sxm2-32gb",
    }
    assert not any("bert-large" in name for _, name, *_ in steps)
    assert len(steps) == 18
