"""The published baselines that come with the suite: readable, sourced, and never measured."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddp_perf.baselines.store import BaselineStore
from ddp_perf.config.loading import find_suites, load_cases
from ddp_perf.config.overrides import Overrides
from ddp_perf.stats.audit import audit_table

ROOT = Path(__file__).parents[3]
STORE = BaselineStore(ROOT / "baselines")
SHIPPED = {
    "a100",
    "a100-80gb",
    "a100-sxm4-40gb",
    "t4",
    "unnamed-gpu",
    "v100",
    "v100-16gb",
    "v100-32gb",
    "v100-infiniband-hdr",
    "v100-pcie-16gb",
    "v100-pcie-32gb",
}


def contradictions(key):
    return {
        (table.name, one.row.world_size, one.what)
        for table in STORE.load(key).published
        for one in audit_table(table)
    }


@pytest.mark.parametrize("key", sorted(SHIPPED))
def test_each_table_names_its_source_and_hardware(key):
    baseline = STORE.load(key)

    assert baseline.published
    for table in baseline.published:
        assert table.document
        assert table.where
        assert table.hardware


def test_rows_name_cases_that_the_suites_have():
    configs = find_suites(ROOT / "bench_configs")
    cases = {case.id: case for case in load_cases(configs, Overrides())}
    named = [
        (row, table)
        for key in SHIPPED
        for table in STORE.load(key).published
        for row in table.rows
        if row.case is not None
    ]

    assert named
    for row, table in named:
        case = cases[row.case]
        assert (case.world_size, case.batch_size) == (row.world_size, row.batch_size)
        assert {name: case.work().get(name) for name in table.work} == table.work
        if case.trains:
            assert (case.schedule.steps, case.schedule.warmup) == (table.steps, table.warmup)
        else:  # by nccl-tests, which counts calls
            assert (table.steps, table.warmup) == (None, None)


def test_the_contradictions_known_from_reading_are_found_by_arithmetic():
    assert contradictions("unnamed-gpu") >= {("sample-output", 4, "throughput")}
    assert contradictions("t4") >= {("distilbert-agnews", 2, "efficiency")}
    assert contradictions("v100-infiniband-hdr") >= {
        ("throughput-scaling", 64, "throughput"),
        ("throughput-scaling", 128, "throughput"),
        ("throughput-scaling", 256, "throughput"),
        ("strong-scaling", 8, "global batch"),
    }


@pytest.mark.parametrize(
    "key", ["v100-pcie-16gb", "v100-pcie-32gb", "v100", "a100-80gb", "a100-sxm4-40gb"]
)
def test_tables_that_agree_with_themselves_are_clean(key):
    assert contradictions(key) == set()


def test_relatives_are_of_the_same_family_the_nearest_name_first():
    keys = [baseline.accelerator for baseline in STORE.relatives("v100-sxm2-16gb")]

    assert keys[0] in ("v100-16gb", "v100-pcie-16gb")
    assert set(keys) == {key for key in SHIPPED if key.startswith("v100")}
    assert STORE.relatives("l4") == []
    assert STORE.relatives("cpu-some-2c-host") == []
