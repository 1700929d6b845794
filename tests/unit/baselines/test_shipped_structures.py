"""The structures that ship belong to the current suites, and agree with arithmetic."""

from __future__ import annotations

import itertools
import subprocess
import sys
from pathlib import Path

import pytest

from ddp_perf.baselines.store import BaselineStore
from ddp_perf.config.loading import find_suites, load_cases
from ddp_perf.config.overrides import Overrides

ROOT = Path(__file__).parents[3]
SUITES = [
    path
    for folder in (ROOT / "bench_configs", ROOT / "bench_configs" / "cpu")
    for path in find_suites(folder)
    if path.stem != "collectives"  # they do not train
]


def known(path):
    """Return each case with a structure. Those of one rank and of two ship; sessions add others."""
    cases = {case.id: case for case in load_cases([path], Overrides())}
    structures = BaselineStore(ROOT / "baselines").load_structures(next(iter(cases.values())).suite)
    shipped = {case.id for case in cases.values() if case.world_size <= 2}
    assert shipped <= structures.keys()
    return [(case, structures[case_id]) for case_id, case in cases.items() if case_id in structures]


def sent(structure, kind):
    """Return the bytes of each collective of a kind, in order."""
    return [one.bytes for one in structure.collectives if one.kind == kind]


@pytest.mark.parametrize("path", SUITES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_every_suite_has_the_structure_of_its_current_cases(path):
    """If this fails, run: python ci/structures.py."""
    for case, stored in known(path):
        assert stored.work == case.work()


@pytest.mark.parametrize("path", SUITES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_ddp_reduces_every_gradient_once_and_one_rank_sends_nothing(path):
    for case, stored in known(path):
        structure = stored.structure
        assert structure.gradient_bytes == 4 * structure.parameters
        if case.world_size == 1:
            assert (structure.collectives, structure.buckets) == ((), ())
        elif case.strategy == "ddp" and case.comm_hook is None:
            reduced = sent(structure, "all_reduce")
            assert sum(reduced) == sum(structure.buckets) == structure.gradient_bytes
            assert sorted(reduced) == sorted(structure.buckets)


@pytest.mark.parametrize("folder", ["", "cpu"])
def test_fsdp_scatters_every_gradient_once_and_gathers_blocks_twice(folder):
    """The root's own parameters stay gathered from forward to backward, the blocks' do not."""
    for case, stored in known(ROOT / "bench_configs" / folder / "fsdp_scaling.yaml"):
        if case.world_size == 2:
            structure = stored.structure
            root, *blocks = sent(structure, "all_gather")
            padded = pytest.approx(structure.gradient_bytes, rel=1e-4)  # odd rows, of two ranks
            assert sum(sent(structure, "reduce_scatter")) == padded
            assert root + sum(blocks) / 2 == padded
            assert len(blocks) == 2 * case.model["num_layers"]


@pytest.mark.parametrize("folder", ["", "cpu"])
def test_each_hook_sends_the_bytes_of_its_formula(folder):
    path = ROOT / "bench_configs" / folder / "comm_optimizations.yaml"
    hooked = {
        c.comm_hook.kind: (c, s.structure)
        for c, s in known(path)
        if c.comm_hook and c.world_size == 2
    }

    _, half = hooked["fp16"]
    assert sum(sent(half, "all_reduce")) == half.gradient_bytes / 2
    case, sparse = hooked["topk"]
    kept = round(case.comm_hook.ratio * sparse.parameters)
    gathered = sum(sent(sparse, "all_gather"))  # of two ranks: values, and where they belong
    assert gathered == pytest.approx(2 * 2 * 4 * kept, rel=0.01)
    _, tree = hooked["hierarchical"]
    assert sum(sent(tree, "reduce_scatter")) == sum(sent(tree, "all_gather")) == tree.gradient_bytes
    assert sum(sent(tree, "all_reduce")) == tree.gradient_bytes / 2  # groups of two
    case, low_rank = hooked["powersgd"]
    hidden = [case.model["hidden_dim"]] * (case.model["num_layers"] - 1)
    sizes = [case.model["input_dim"], *hidden, case.model["output_dim"]]
    factors = sum(wide + narrow for wide, narrow in itertools.pairwise(sizes))  # P and Q of each
    biases = sum(sizes[1:])
    assert sum(sent(low_rank, "all_reduce")) == 4 * (case.comm_hook.rank * factors + biases)


@pytest.mark.parametrize("folder", ["", "cpu"])
def test_each_communication_technique_sends_the_bytes_of_its_formula(folder):
    path = ROOT / "bench_configs" / folder / "communication_techniques.yaml"
    by_name = {case.technique: stored.structure for case, stored in known(path) if case.ddp}
    base = by_name[None]

    assert base.buckets == (base.gradient_bytes,)  # full when the backward ends
    sweep = [len(s.buckets) for name, s in by_name.items() if "buckets-" in str(name)]
    assert sweep == sorted(set(sweep), reverse=True)
    assert min(sweep) > 1
    kept = round(0.01 * base.parameters)
    combined = by_name["combined"]  # of two ranks, which are one group: nobody is in another one
    within = [s for s in sent(combined, "all_gather") if s not in _between(combined)]
    assert sum(within) == sum(sent(combined, "reduce_scatter")) == base.gradient_bytes
    assert sum(_between(combined)) == pytest.approx(2 * 4 * kept / 2, rel=0.02)
    half, full = by_name["combined-powersgd"], by_name["powersgd"]
    assert {one.dtype for one in half.collectives} == {"float16"}
    assert sum(sent(half, "all_reduce")) == sum(sent(full, "all_reduce")) / 2
    assert sum(sent(by_name["fp16-wire"], "all_reduce")) == base.gradient_bytes / 2


def _between(structure):
    """Return the gathers between groups: the second and third collective of each bucket."""
    return [c.bytes for i, c in enumerate(structure.collectives) if i % 4 in (1, 2)]


@pytest.mark.parametrize("folder", ["", "cpu"])
def test_accumulation_and_half_precision_synchronise_as_the_base_does(folder):
    """Four micro-steps synchronise once. Autocast keeps gradients in float32."""
    path = ROOT / "bench_configs" / folder / "text_transformer_agnews_techniques.yaml"
    by_name = {case.technique: stored.structure for case, stored in known(path) if case.ddp}

    assert set(by_name) >= {None, "accumulate4", "fp16", "combined"}
    assert len(set(by_name.values())) == 1


@pytest.mark.parametrize("folder", ["", "cpu"])
def test_fsdp_in_half_precision_gathers_half_the_bytes(folder):
    path = ROOT / "bench_configs" / folder / "ddp_or_fsdp.yaml"
    by_name = {case.technique: stored.structure for case, stored in known(path) if case.fsdp}
    fsdp, combined = by_name["fsdp"], by_name["combined"]

    assert by_name["fsdp-offload"] == fsdp
    assert sum(sent(combined, "all_gather")) == sum(sent(fsdp, "all_gather")) / 2
    assert sent(combined, "reduce_scatter") == sent(fsdp, "reduce_scatter")  # reduced in float32


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("mlp_scaling", 41_953_280),  # 167.8 MB of gradients
        ("distilbert_agnews", 66_956_548),
        ("resnet50_scaling", 25_557_032),
        ("fsdp_scaling", 124_439_808),
    ],
)
def test_the_full_sizes_have_the_known_numbers_of_parameters(name, parameters):
    for _, stored in known(ROOT / "bench_configs" / f"{name}.yaml"):
        assert stored.structure.parameters == parameters


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--help"], 0, "usage: structures.py [-h] [--check] [SUITE.yaml ...]"),
        (["--chekc"], 2, "structures.py: error: unrecognized arguments: --chekc"),
        (["none.yaml"], 2, "structures.py: error: none.yaml: no such suite file"),
    ],
)
def test_the_script_that_writes_the_files_explains_itself(arguments, code, said):
    done = subprocess.run(
        [sys.executable, "ci/structures.py", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == code
    assert said in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
