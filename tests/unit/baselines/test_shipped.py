"""The published baselines that ship are readable, name their source, and contain no session."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ddp_perf.baselines.store import BaselineStore
from ddp_perf.config.loading import Overrides, find_suites, load_cases
from ddp_perf.stats.plausibility import audit_table
from ddp_perf.system.gpu.gpus import accelerator_slug
from tests.builders import make_gpu_machine

ROOT = Path(__file__).parents[3]
STORE = BaselineStore(ROOT / "baselines")
SHIPPED = {
    "a100-sxm4-40gb",
    "a100-sxm4-80gb",
    "t4",
    "unnamed-gpu",
    "v100",
    "v100-infiniband-hdr",
    "v100-pcie-16gb",
    "v100-pcie-32gb",
    "v100-sxm2-16gb",
    "v100-sxm2-32gb",
    "v100-sxm3-32gb",
}


def contradictions(key):
    return {
        (table.name, one.row.world_size, one.what)
        for table in STORE.load(key).published
        for one in audit_table(table)
    }


def tables():
    return [table for key in sorted(SHIPPED) for table in STORE.load(key).published]


def test_only_the_listed_files_have_published_figures():
    """Other files are of machines that were measured in this checkout, as ci/bench does."""
    assert {name for name in STORE.accelerators() if STORE.load(name).published} == SHIPPED


@pytest.mark.parametrize("table", tables(), ids=lambda table: table.name)
def test_each_table_names_its_source_its_revision_and_its_place(table):
    assert table.document
    assert table.where
    assert table.hardware
    assert table.date is not None  # or "undated"
    if table.url is not None:  # of a repository: that very version of the file
        assert re.fullmatch("[0-9a-f]{40}", table.revision)
        assert f"/{table.revision}/" in table.url
        assert table.date != "undated"


@pytest.mark.parametrize("table", tables(), ids=lambda table: table.name)
def test_every_document_and_table_is_in_the_list_of_published_figures(table):
    listed = (ROOT / "docs" / "published.md").read_text(encoding="utf-8")

    assert f"`{table.name}`" in listed


def test_a_file_is_named_as_its_gpus_are():
    """If a table does not state memory or form factor, no machine has its name."""
    named = {
        "Tesla V100-SXM2-16GB": "v100-sxm2-16gb",
        "Tesla V100-SXM2-32GB": "v100-sxm2-32gb",
        "Tesla V100-SXM3-32GB": "v100-sxm3-32gb",
        "NVIDIA A100-SXM4-80GB": "a100-sxm4-80gb",
        "NVIDIA A100-SXM4-40GB": "a100-sxm4-40gb",
        "Tesla V100-PCIE-16GB": "v100-pcie-16gb",
        "Tesla V100-PCIE-32GB": "v100-pcie-32gb",
        "Tesla T4": "t4",
    }
    for name, key in named.items():
        assert accelerator_slug(make_gpu_machine(name, name)) == key
    assert SHIPPED - set(named.values()) == {"unnamed-gpu", "v100", "v100-infiniband-hdr"}


def test_a_table_that_needs_more_tolerance_than_the_rule_states_why():
    wider = [table for table in tables() if table.tolerance]

    assert {table.name for table in wider} == {"all-reduce", "all-reduce-1mib", "resnet50-amp"}
    assert all(table.remark for table in wider)


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


def test_the_known_contradictions_are_found_by_the_audit():
    assert contradictions("unnamed-gpu") >= {("sample-output", 4, "throughput")}
    assert contradictions("t4") >= {("distilbert-agnews", 2, "efficiency")}
    assert contradictions("v100-infiniband-hdr") >= {
        ("throughput-scaling", 64, "throughput"),
        ("throughput-scaling", 128, "throughput"),
        ("throughput-scaling", 256, "throughput"),
        ("strong-scaling", 8, "global batch"),
        ("cost", 64, "speedup"),
    }


def test_the_communication_of_document_004_contradicts_its_step_times_at_seven_sizes():
    found = contradictions("v100-infiniband-hdr")

    assert {ranks for _, ranks, what in found if what == "share of communication"} == {
        *(2, 4, 8, 32, 64, 128, 256),
    }


@pytest.mark.parametrize(
    "key",
    [
        "v100-pcie-16gb",
        "v100-pcie-32gb",
        "v100",
        "a100-sxm4-80gb",
        "v100-sxm2-16gb",
        "v100-sxm3-32gb",
    ],
)
def test_consistent_tables_have_no_audit_finding(key):
    assert contradictions(key) == set()


def test_relatives_are_of_the_same_family_the_nearest_name_first():
    keys = [baseline.accelerator for baseline in STORE.relatives("v100-fhhl-32gb")]

    assert keys[0] in ("v100-sxm2-32gb", "v100-sxm3-32gb", "v100-pcie-32gb")
    assert set(keys) == {key for key in SHIPPED if key.startswith("v100")}
    assert STORE.relatives("l4") == []
    assert STORE.relatives("cpu-some-2c-host") == []
