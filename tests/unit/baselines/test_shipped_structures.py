"""The structures that ship are those of the current suites, as computed by hand."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ddp_perf.baselines.work import WorkStore
from ddp_perf.config.loading import Overrides, find_suites, load_cases
from ddp_perf.core.verdict import Outcome
from ddp_perf.session.gate.exact import judge_structure
from tests.arithmetic import expected_structure
from tests.builders import make_launch

ROOT = Path(__file__).parents[3]
SUITES = [
    path
    for folder in (ROOT / "bench_configs", ROOT / "bench_configs" / "cpu")
    for path in find_suites(folder)
    if path.stem != "collectives"  # they do not train
]
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
each_suite = pytest.mark.parametrize(
    "path", SUITES, ids=lambda path: f"{path.parent.name}-{path.stem}"
)


def cases(path, **overrides):
    return load_cases([path], Overrides(**overrides))


def shipped(path):
    return WorkStore(ROOT / "baselines").structures(cases(path)[0].suite)


def known(path):
    """Return each case of the suite that has a structure of its own in the file."""
    structures = shipped(path)
    return [(case, structures[case.id]) for case in cases(path) if case.id in structures]


def sent(structure, kind):
    """Return the bytes of each collective of a kind, in order."""
    return [one.bytes for one in structure.collectives if one.kind == kind]


@each_suite
def test_the_file_is_of_the_suites_current_cases(path):
    """If this fails, run: python ci/counts.py."""
    found = known(path)

    assert {case.id for case in cases(path) if case.world_size <= 2} <= {c.id for c, _ in found}
    assert all(stored.options == case.work() for case, stored in found)


@each_suite
def test_the_work_of_exactly_the_suites_cases_ships(path):
    """At no other number of ranks, and for each version of torch that has files."""
    store, own = WorkStore(ROOT / "baselines"), cases(path)
    versions = store.versions(own[0].suite)

    assert versions
    for version in versions:
        stored = store.load(own[0].suite, version).cases
        assert {name: one.options for name, one in stored.items()} == {
            case.id: case.work() for case in own
        }


@each_suite
def test_every_stored_structure_is_that_of_a_computation_by_hand(path):
    """From the shapes of the model and the options of the case alone, at each number of ranks."""
    structures, found = shipped(path), set()
    for case in [*cases(path), *cases(path, world_sizes=_sizes_of(path))]:
        if case.id in structures:
            assert structures[case.id].step.structure == expected_structure(case), case.id
            found.add(case.id)
    assert found == set(structures)


@each_suite
@pytest.mark.parametrize("overrides", [{}, {"world_sizes": SIZES, "batch_sizes": (256,)}])
def test_a_fresh_machine_finds_the_structure_of_each_case(path, overrides):
    """It has no session of its own. Other batches and numbers of ranks are options of pytest."""
    shared = shipped(path)
    for case in cases(path, **overrides):
        launches = [make_launch(case, structure=expected_structure(case))]

        verdict = judge_structure(case, launches, None, shared)

        assert verdict.outcome is Outcome.PASS, f"{case.id}: {verdict.reason}"


@pytest.mark.parametrize("ranks_per_node", [4, 8])
def test_a_fresh_cluster_finds_them_too(ranks_per_node):
    for path in SUITES:
        shared = shipped(path)
        sizes = (ranks_per_node * 2, ranks_per_node * 8)
        for case in cases(
            path, world_sizes=sizes, ranks_per_node=ranks_per_node, batch_sizes=(64,)
        ):
            launches = [make_launch(case, structure=expected_structure(case))]
            assert judge_structure(case, launches, None, shared).outcome is Outcome.PASS, case.id


@pytest.mark.parametrize("folder", ["", "cpu"])
def test_smaller_buckets_are_more_buckets(folder):
    by_name = _by_technique(folder, "communication_techniques")
    base = by_name[None]

    assert base.buckets == (base.gradient_bytes,)  # full when the backward ends
    sweep = [len(s.buckets) for name, s in by_name.items() if "buckets-" in str(name)]
    assert sweep == sorted(set(sweep), reverse=True)
    assert min(sweep) > 1


@pytest.mark.parametrize("folder", ["", "cpu"])
def test_accumulation_and_half_precision_synchronise_as_the_base_does(folder):
    """Four micro-steps synchronise once. Autocast keeps gradients in float32."""
    by_name = _by_technique(folder, "text_transformer_agnews_techniques")

    assert set(by_name) >= {None, "accumulate4", "fp16", "combined"}
    assert len(set(by_name.values())) == 1


@pytest.mark.parametrize("folder", ["", "cpu"])
def test_fsdp_in_half_precision_gathers_half_the_bytes(folder):
    by_name = _by_technique(folder, "ddp_or_fsdp")
    fsdp = by_name["fsdp"]

    assert by_name["fsdp-offload"] == fsdp
    for combined in (by_name["combined"], by_name["combined-fp16"]):
        assert sum(sent(combined, "all_gather")) == sum(sent(fsdp, "all_gather")) / 2
        assert sent(combined, "reduce_scatter") == sent(fsdp, "reduce_scatter")  # in float32


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("mlp_scaling", 41_953_280),  # 167.8 MB of gradients
        ("distilbert_agnews", 66_956_548),
        ("resnet50_scaling", 25_557_032),
        ("fsdp_scaling", 124_439_808),
        ("llama_fsdp", 8_030_261_248),
        ("llama_scaling", 1_100_048_384),
    ],
)
def test_the_full_sizes_have_the_known_numbers_of_parameters(name, parameters):
    for _, stored in known(ROOT / "bench_configs" / f"{name}.yaml"):
        assert stored.step.structure.parameters == parameters


def _by_technique(folder, name):
    """Return the structures on two ranks by technique; None is the base."""
    found = known(ROOT / "bench_configs" / folder / f"{name}.yaml")
    return {case.technique: stored.step.structure for case, stored in found if case.world_size == 2}


def _sizes_of(path):
    """Return the sizes that divide the batches of the suite, if all ranks share them."""
    batches = [case.global_batch for case in cases(path) if case.global_batch]
    return tuple(size for size in SIZES if all(batch % size == 0 for batch in batches))


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--help"], 0, "usage: counts.py [-h] [--check] [SUITE.yaml ...]"),
        (["--chekc"], 2, "counts.py: error: unrecognized arguments: --chekc"),
        (["none.yaml"], 2, "counts.py: error: none.yaml: no such suite file"),
    ],
)
def test_the_script_that_writes_the_files_explains_itself(arguments, code, said):
    done = subprocess.run(
        [sys.executable, "ci/counts.py", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == code
    assert said in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
