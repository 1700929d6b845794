"""The shipped suites and their twins for CPUs. Their work is stored in baselines/structure."""

from __future__ import annotations

import datetime
import json
import re
from pathlib import Path
from typing import get_args

import pytest

from ddp_perf.baselines.save import known_structure
from ddp_perf.baselines.work import WorkStore
from ddp_perf.config.loading import Overrides, find_suites, load_cases, load_suite, suite_schema
from ddp_perf.core.strategy import HierarchicalHook
from ddp_perf.core.subject import CollectiveKind, parse_size
from ddp_perf.core.target import targets_on
from ddp_perf.session.measure.nights import plan_night
from ddp_perf.session.measure.rounds import launches_s, session_length
from tests.builders import make_baseline, make_capacity, make_gpu_machine

CONFIGS = Path(__file__).parents[3] / "bench_configs"


def test_cpu_quick_is_the_same_experiment_sized_for_a_core():
    quick, full = load_suite(CONFIGS / "cpu_quick.yaml"), load_suite(CONFIGS / "mlp_scaling.yaml")

    assert (quick.tier, quick.world_sizes, len(quick.batch_sizes)) == ("cpu", [1, 2], 2)
    assert (quick.workload, quick.ddp, quick.steps) == (full.workload, full.ddp, full.steps)
    assert quick.tolerances.step_time >= 0.10  # less could not be held on a shared CPU


@pytest.mark.parametrize(
    ("name", "techniques"),
    [
        (
            "ddp_or_fsdp",
            {
                *("fp16", "bf16", "checkpoint", "fsdp", "fsdp-offload"),
                *("combined", "combined-fp16"),
            },
        ),
        ("distilbert_agnews", {"new-batches"}),
        ("mlp_precisions", {"tf32", "bf16", "fp16"}),
        ("llama_scaling", {"bf16", "compile", "bf16-compile"}),
        (
            "communication_techniques",
            {
                *("buckets-1", "buckets-5", "buckets-25", "buckets-50", "hierarchical", "topk"),
                *("powersgd", "fp16-wire", "combined", "combined-powersgd"),
            },
        ),
        (
            "text_transformer_agnews_techniques",
            {"accumulate4", "fp16", "bf16", "bucket-views", "combined"},
        ),
    ],
)
def test_a_suite_compares_the_techniques_of_its_document(name, techniques):
    cases = load_cases([CONFIGS / f"{name}.yaml"], Overrides())
    most = max(case.world_size for case in cases)

    found = {case.technique: case for case in cases if case.world_size == most}
    assert set(found) == {None, *techniques}
    assert {case.base for name, case in found.items() if name} == {found[None].id}
    assert {case.strategy for case in cases if case.technique is None} == {"none", "ddp"}


@pytest.mark.parametrize(
    "name",
    [
        "comm_optimizations",
        "communication_techniques",
        "ddp_or_fsdp",
        "text_transformer_agnews_techniques",
    ],
)
def test_techniques_are_compared_on_any_usual_number_of_gpus(name):
    assert load_suite(CONFIGS / f"{name}.yaml").world_sizes == [1, 2, 4, 8]


@pytest.mark.parametrize("gpu", ["Tesla V100-PCIE-16GB", "Tesla T4"])
def test_gpus_without_bf16_have_a_combination_too(gpu):
    gpus = make_gpu_machine(*[gpu] * 8, compute_capability=(7, 5))
    capacity = make_capacity(gpus)
    cases = load_cases([CONFIGS / "ddp_or_fsdp.yaml"], Overrides())

    runs = {case.technique for case in cases if capacity.obstacle(case) is None}
    assert runs == {None, "fp16", "checkpoint", "fsdp", "fsdp-offload", "combined-fp16"}


def test_llama_fsdp_trains_what_no_gpu_of_80_gb_has_room_for():
    (case,) = load_cases([CONFIGS / "llama_fsdp.yaml"], Overrides())
    known = WorkStore(CONFIGS.parent / "baselines").structures(case.suite)
    parameters = known_structure(case, known).parameters

    assert 4 * 4 * parameters > 80e9  # parameters, gradients, and AdamW's two moments
    assert (case.strategy, case.precision, case.single) == ("fsdp", "bf16", None)
    assert case.training.activation_checkpointing


@pytest.mark.parametrize("folder", ["", "cpu"])
def test_communication_is_compared_with_one_bucket_that_overlaps_nothing(folder):
    path = CONFIGS / folder / "communication_techniques.yaml"
    cases = load_cases([path], Overrides(world_sizes=(2,)))
    found = {case.technique: case for case in cases}
    sizes = [
        case.training.ddp.bucket_cap_mb for name, case in found.items() if "buckets-" in str(name)
    ]

    assert found[None].training.ddp.bucket_cap_mb > 10 * max(sizes)
    assert [size / sizes[0] for size in sizes] == pytest.approx([1, 5, 25, 50])
    assert found["combined"].training.comm_hook == HierarchicalHook(group_size=2, ratio=0.01)
    assert found["combined"].training.ddp.bucket_cap_mb == sizes[2]


# What they add is of GPUs: TF32, and cuDNN's choice of algorithms.
TWIN_OF_ANOTHER_NAME = {
    "mlp_scaling": "cpu_quick",
    "resnet50_tf32": "cpu/resnet50_scaling",
    "resnet50_fp32": "cpu/resnet50_scaling",
}
TRAINING_TWINS = [p for p in find_suites(CONFIGS / "cpu") if p.stem != "collectives"]


@pytest.mark.parametrize("path", TRAINING_TWINS, ids=lambda path: path.stem)
def test_a_twin_for_the_cpu_is_the_same_experiment_sized_for_a_core(path):
    twin, full = load_suite(path), load_suite(CONFIGS / path.name)

    ranks = [1, 2] if 1 in full.world_sizes else [2]
    assert (twin.tier, full.tier, twin.world_sizes) == ("cpu", "gpu", ranks)
    assert (twin.workload, twin.variant, twin.ddp) == (full.workload, full.variant, full.ddp)
    assert type(twin.batch_sizes) is type(full.batch_sizes)  # weak or strong scaling
    assert (twin.data.num_workers is None) == (full.data.num_workers is None)
    assert twin.model.get("dataset") == full.model.get("dataset")
    assert full.suite in twin.description
    assert twin.tolerances.step_time >= 0.10  # less could not be held on a shared CPU


def test_collectives_are_measured_over_the_sizes_of_gradients_and_parameters():
    suite = load_suite(CONFIGS / "collectives.yaml")
    sizes = [parse_size(size) for size in suite.sizes]

    assert (min(sizes), max(sizes)) == (2**10, 2**30)
    assert sizes == sorted(sizes)
    assert tuple(suite.collectives) == get_args(CollectiveKind)
    assert suite.world_sizes == [2, 4, 8]


def test_the_collectives_twin_is_the_same_over_sizes_for_a_core():
    twin, full = (load_suite(CONFIGS / folder / "collectives.yaml") for folder in ("cpu", ""))

    assert (twin.tier, full.tier, twin.world_sizes) == ("cpu", "gpu", [2])
    assert twin.collectives == full.collectives
    assert len(twin.sizes) == len(full.sizes)
    assert max(map(parse_size, twin.sizes)) == 16 * 2**20
    assert full.suite in twin.description
    assert twin.tolerances.step_time >= 0.10  # less could not be held on a shared CPU


def test_every_experiment_on_gpus_has_a_twin_for_the_cpu():
    twins = {path.stem: path.stem for path in find_suites(CONFIGS / "cpu")} | TWIN_OF_ANOTHER_NAME

    assert {path.stem for path in find_suites(CONFIGS) if path.stem != "cpu_quick"} == set(twins)
    for twin in TWIN_OF_ANOTHER_NAME.values():
        assert load_suite(CONFIGS / f"{twin}.yaml").tier == "cpu"


@pytest.mark.parametrize("directory", [CONFIGS, CONFIGS / "cpu"], ids=["gpu", "cpu"])
def test_all_suites_of_a_directory_can_be_run_together(directory):
    paths = find_suites(directory)

    assert {case.suite for case in load_cases(paths, Overrides())} == {
        load_suite(path).suite for path in paths
    }


def test_the_published_schema_is_the_one_that_validates():
    path = CONFIGS / "schema.json"
    assert json.loads(path.read_text(encoding="utf-8")) == json.loads(json.dumps(suite_schema()))


@pytest.mark.parametrize(
    ("name", "accelerator", "targets"),
    [
        (
            "resnet50_scaling.yaml",
            "v100-sxm2-16gb",
            {2: {"efficiency": 0.85, "exposed_communication": 0.15}, 1: {}, 32: {}},
        ),
        ("resnet50_scaling.yaml", "h200", {2: {}, 16: {}}),
        ("distilbert_agnews.yaml", "t4", {2: {"efficiency": 0.85}, 4: {}}),
        ("cpu/resnet50_scaling.yaml", "cpu-some", {2: {"peak_memory": 4e9}}),
    ],
)
def test_the_targets_of_the_documents_ship_for_their_accelerators(name, accelerator, targets):
    for case in load_cases([CONFIGS / name], Overrides()):
        found = targets_on(accelerator, case.targets).values()
        expected = targets.get(case.world_size)
        assert expected is None or {one.figure: one.bound for one in found} == expected


def test_no_shipped_suite_for_cpus_has_a_target_that_depends_on_time():
    cases = load_cases([*find_suites(CONFIGS / "cpu"), CONFIGS / "cpu_quick.yaml"], Overrides())

    assert {one.figure for case in cases for one in case.targets} <= {"peak_memory"}


MACHINES = [("V100-PCIE-16GB", 2, (7, 0)), ("T4", 4, (7, 5)), ("A100-SXM4-80GB", 8, (8, 0))]


def nights_of(gpu, count, compute_capability):
    """The cases that run on a machine, and its seven nights in a row."""
    names = [f"NVIDIA {gpu}"] * count
    machine = make_gpu_machine(*names, compute_capability=compute_capability)
    capacity = make_capacity(machine)
    shipped = [c for c in load_cases(find_suites(CONFIGS), Overrides()) if c.tier == "gpu"]
    days = [datetime.date(2026, 11, 26) + datetime.timedelta(days=day) for day in range(7)]
    nights = [plan_night(shipped, capacity.fits, day) for day in days]
    return [case for case in shipped if capacity.obstacle(case) is None], nights


@pytest.mark.parametrize("machine", MACHINES, ids=str)
def test_the_core_has_at_most_20_cases_and_seven_nights_measure_all(machine):
    cases, nights = nights_of(*machine)

    core = [case for case in cases if nights[0].gates(case)]
    assert len(core) <= 20
    assert all(night.core == nights[0].core for night in nights)
    assert {case.key for case in cases} <= {
        case.key for night in nights for case in cases if night.measures(case)
    }
    if machine[1] == 8:
        assert {case.world_size for case in core} == {1, 2, 4, 8}
        assert {case.strategy for case in core if case.trains} == {"none", "ddp", "fsdp"}
        assert {case.precision for case in core} == {"fp32", "fp16", "bf16"}
        assert {case.global_batch is None for case in core} == {True, False}
        assert any(case.training.comm_hook for case in core)
        assert not all(case.trains for case in core)


@pytest.mark.parametrize("machine", MACHINES, ids=str)
def test_the_page_states_how_long_the_longest_of_the_first_nights_takes(machine):
    gpu, count, _ = machine
    cases, nights = nights_of(*machine)

    def launches(night):
        return sum(case.schedule.launches for case in cases if night.measures(case))

    longest = max(nights, key=launches)
    measured = [case for case in cases if longest.measures(case)]
    core = [case for case in measured if longest.gates(case)]
    row = [
        f"{count} {gpu}",
        *(str(sum(case.schedule.launches for case in some)) for some in (core, measured)),
        *(_length(some) for some in (measured, cases)),
    ]

    page = (CONFIGS.parent / "docs" / "ci.md").read_text(encoding="utf-8")
    assert f"| {' | '.join(row)} |" in page


@pytest.mark.parametrize("template", ["one_node", "nodes"])
def test_the_time_limit_of_a_batch_job_has_room_for_twice_the_first_night(template):
    cases, nights = nights_of(*MACHINES[-1])
    path = CONFIGS.parent / "ci" / "templates" / "slurm" / f"{template}.sbatch"
    (hours, minutes), *_ = re.findall(r"--time=(\d+):(\d+):00", path.read_text(encoding="utf-8"))

    for night in nights:
        measured = [case for case in cases if night.measures(case)]
        night_s = launches_s(measured, {"gpu": make_baseline()})
        assert 2 * night_s < 3600 * int(hours) + 60 * int(minutes) < 4 * night_s


def _length(cases):
    """Return the part of the line of a first session that states its time."""
    line = session_length(cases, {"gpu": make_baseline()})
    return re.findall(r", (at least \d+ min) ", line)[0]
