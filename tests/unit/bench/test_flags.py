"""The flags of ``python -m ddp_perf.bench``: which case they describe, and which are refused."""

from __future__ import annotations

import msgspec
import pytest

from ddp_perf.bench.flags import Position, benchmark_case, make_parser, parse_flags
from ddp_perf.config.loading import Overrides, load_cases
from ddp_perf.errors import ConfigError
from tests.projects import REPOSITORY

TWO = Position(world_size=2, alone=False)
DOCUMENT = (
    "--epochs 3 --steps-per-epoch 20 --warmup-steps 5 --hidden-dim 4096 --batch-size 4096"
    " --bucket-cap-mb 50"
)


def flags_of(line, *, has_gpu=False):
    return parse_flags(line.split(), lambda: has_gpu)


def case_from(line, position=TWO, *, has_gpu=False, **environ):
    return benchmark_case(flags_of(line, has_gpu=has_gpu), position, environ)


@pytest.mark.parametrize("ranks", [1, 2])
def test_the_documents_command_is_the_case_of_the_shipped_suite(ranks):
    cases = load_cases([REPOSITORY / "bench_configs" / "mlp_scaling.yaml"], Overrides())
    shipped = next(c for c in cases if c.world_size == ranks and c.batch_size == 4096)

    case = case_from(DOCUMENT, Position(world_size=ranks), has_gpu=True)

    assert case.work() == shipped.work()
    assert (case.schedule.steps, case.schedule.warmup) == (60, 5)
    assert case.schedule.launches == 1


def test_without_flags_it_is_the_same_with_the_smaller_batch():
    case = case_from("", has_gpu=True)

    assert case.work() == case_from(DOCUMENT, has_gpu=True).work() | {"batch_size": 256}


@pytest.mark.parametrize(
    ("flag", "field", "value"),
    [
        ("--batch-size 8", "batch_size", 8),
        ("--input-dim 8", "model.input_dim", 8),
        ("--hidden-dim 8", "model.hidden_dim", 8),
        ("--output-dim 8", "model.output_dim", 8),
        ("--num-layers 8", "model.num_layers", 8),
        ("--bucket-cap-mb 0.5", "ddp.bucket_cap_mb", 0.5),
        ("--broadcast-buffers", "ddp.broadcast_buffers", True),
        ("--no-static-graph", "ddp.static_graph", False),
        ("--device cpu", "tier", "cpu"),
    ],
)
def test_each_flag_changes_one_field_of_the_work(flag, field, value):
    usual = case_from("", has_gpu=True).work()

    assert case_from(flag, has_gpu=True).work() == usual | {field: value}


def test_steps_are_those_of_all_epochs_and_the_warm_ups_are_the_first_of_them():
    schedule = case_from("--epochs 2 --steps-per-epoch 7 --warmup-steps 3").schedule

    assert (schedule.steps, schedule.warmup, schedule.measured) == (14, 3, 11)


def test_the_nodes_of_torchrun_are_those_of_the_case():
    case = case_from("", Position(world_size=8, nodes=2, alone=False))

    assert (case.nodes, case.ranks_per_node) == (2, 4)


def test_threads_come_from_the_variable_that_torchrun_sets():
    assert case_from("").work() == case_from("", OMP_NUM_THREADS="1").work()
    assert case_from("", OMP_NUM_THREADS="2").threads_per_rank == 2
    with pytest.raises(ConfigError, match="OMP_NUM_THREADS: '4,2' is not a number of threads"):
        case_from("", OMP_NUM_THREADS="4,2")


@pytest.mark.parametrize(
    ("line", "has_gpu", "device"),
    [
        ("", True, "cuda"),
        ("", False, "cpu"),
        ("--device cpu", True, "cpu"),
        ("--device cpu --backend gloo", True, "cpu"),
        ("--backend nccl", True, "cuda"),
        ("--backend gloo", False, "cpu"),
    ],
)
def test_the_device_is_the_given_one_or_what_torch_sees(line, has_gpu, device):
    assert flags_of(line, has_gpu=has_gpu).device == device


def test_torch_is_not_asked_for_gpus_if_the_ranks_run_on_the_cpu():
    parse_flags(["--device", "cpu"], lambda: pytest.fail("it would initialise CUDA"))


@pytest.mark.parametrize(
    ("line", "has_gpu", "message"),
    [
        ("--device cuda", False, "--device cuda: torch sees no GPU; .* use --device cpu"),
        ("--backend gloo", True, "--backend gloo: .* on cuda, over nccl; .* add --device cpu"),
        ("--backend nccl --device cpu", True, "--backend nccl: .* on cpu, over gloo"),
        ("--warmup-steps 60", False, r"--warmup-steps 60: nothing is left .* \(3 × 20\)"),
        ("--epochs 0", False, "--epochs: '0' is not a whole number above 0"),
        ("--hidden-dim 1.5", False, "--hidden-dim: '1.5' is not a whole number above 0"),
        ("--warmup-steps -1", False, "--warmup-steps"),
        ("--bucket-cap-mb 0", False, "--bucket-cap-mb: '0' is not a number of MiB above 0"),
        ("--bucket-cap-mb nan", False, "--bucket-cap-mb: 'nan' is not"),
        ("--hidden 8", False, "unrecognized arguments: --hidden 8"),
    ],
)
def test_flags_that_cannot_be_run_are_refused_by_name(line, has_gpu, message):
    with pytest.raises(ConfigError, match=message) as caught:
        flags_of(line, has_gpu=has_gpu)

    assert "\n" not in str(caught.value)


def test_profile_takes_a_folder_or_has_one():
    assert flags_of("").profile is None
    assert flags_of("--profile").profile == "artifacts/profile/bench"
    assert flags_of("--profile here").profile == "here"


def test_the_help_of_each_flag_names_what_a_suite_has_for_it():
    for action in make_parser()._actions[1:]:
        assert "suite" in action.help, action.option_strings


def test_flags_are_the_same_after_the_way_through_the_store():
    flags = flags_of(DOCUMENT)

    assert msgspec.json.decode(msgspec.json.encode(flags), type=type(flags)) == flags
