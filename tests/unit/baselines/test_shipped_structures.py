"""The structures that ship: of today's suites, and in agreement with arithmetic."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddp_perf.baselines.store import BaselineStore
from ddp_perf.config.loading import find_suites, load_cases
from ddp_perf.config.overrides import Overrides

ROOT = Path(__file__).parents[3]
SUITES = [
    *find_suites(ROOT / "bench_configs"),
    *find_suites(ROOT / "bench_configs" / "cpu"),
]


def known(path):
    """Each case of one rank or two with its structure."""
    cases = [case for case in load_cases([path], Overrides()) if case.world_size <= 2]
    structures = BaselineStore(ROOT / "baselines").load_structures(cases[0].suite)
    assert structures.keys() == {case.id for case in cases}
    return [(case, structures[case.id]) for case in cases]


@pytest.mark.parametrize("path", SUITES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_every_suite_has_the_structure_of_its_cases_as_they_are(path):
    """Where not: python ci/structures.py."""
    for case, stored in known(path):
        assert stored.work == case.work()


@pytest.mark.parametrize("path", SUITES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_ddp_reduces_every_gradient_once_and_one_rank_sends_nothing(path):
    for case, stored in known(path):
        structure = stored.structure
        assert structure.gradient_bytes == 4 * structure.parameters
        reduced = [c.bytes for c in structure.collectives if c.kind == "all_reduce"]
        if case.world_size == 1:
            assert (structure.collectives, structure.buckets) == ((), ())
        else:
            assert sum(reduced) == sum(structure.buckets) == structure.gradient_bytes
            assert sorted(reduced) == sorted(structure.buckets)


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("mlp_scaling", 25_171_968),  # 100.7 MB of gradients
        ("distilbert_agnews", 66_956_548),
        ("resnet50_scaling", 25_557_032),
        ("fsdp_scaling", 124_439_808),
    ],
)
def test_the_full_sizes_are_the_published_ones(name, parameters):
    for _, stored in known(ROOT / "bench_configs" / f"{name}.yaml"):
        assert stored.structure.parameters == parameters
