"""Real ranks do what one rank alone does in a group of as many, which does nothing."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from ddp_perf.baselines.save import known_structure
from ddp_perf.baselines.work import WorkStore
from ddp_perf.config.loading import Overrides, load_cases
from ddp_perf.core.case import with_training
from ddp_perf.core.launch import LaunchRequest, LaunchResult
from ddp_perf.core.work import CountRequest, StepWork
from ddp_perf.session.gate.exact import compare_structure
from ddp_perf.system.capacity import find_capacity
from tests.arithmetic import expected_structure
from tests.builders import make_cases

ROOT = Path(__file__).parents[2]
# The techniques of CPU suites in which ranks communicate, each way once. None: the base.
STRATEGIES: dict[str, list[str | None]] = {
    "cpu_quick": [None],
    "cpu/resnet50_scaling": [None],  # broadcasts buffers
    "cpu/text_transformer_agnews_techniques": ["combined"],  # accumulates
    "cpu/communication_techniques": ["topk", "combined", "combined-powersgd"],
    "cpu/llama_fsdp": [None],  # allocated after it is sharded
    "cpu/ddp_or_fsdp": ["bf16", "fsdp", "fsdp-offload", "combined", "combined-fp16"],
}
FOUR_RANKS = {("cpu/communication_techniques", "topk"), ("cpu/ddp_or_fsdp", "combined")}
SMALL = {"bucket_cap_mb": 0.02}
GPT = {
    "workload": "gpt",
    "model": {"max_seq_len": 8, "vocab_size": 37, "d_model": 24, "n_heads": 2, "num_layers": 3},
}
MLP = {
    "model": {"input_dim": 70, "hidden_dim": 90, "output_dim": 30, "num_layers": 4},
    "ddp": SMALL,
}
RESNET = {
    "workload": "resnet50",
    "model": {"image_size": 32, "num_classes": 10, "width": 8, "channels_last": False},
}


def suite(name, **overrides):
    return load_cases([ROOT / "bench_configs" / f"{name}.yaml"], Overrides(**overrides))


def counted(launcher, case):
    work = launcher.count(CountRequest(case=case))
    assert isinstance(work, StepWork), f"{work}\n{getattr(work, 'traceback', '')}"
    return work.structure


@pytest.fixture(scope="module")
def shipped():
    """``shipped(case)``: the structure that the file of its suite states."""
    store = WorkStore(ROOT / "baselines")
    return lambda case: known_structure(case, store.structures(case.suite))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "technique", "ranks"),
    [
        (name, technique, 4 if (name, technique) in FOUR_RANKS else 2)
        for name, chosen in STRATEGIES.items()
        for technique in chosen
    ],
)
def test_ranks_over_gloo_or_nccl_do_what_is_counted(
    launcher, shipped, tier, name, technique, ranks
):
    (case,) = (
        case
        for case in suite(name, world_sizes=(ranks,), batch_sizes=(4,), steps=6)
        if case.technique == technique
    )
    real = msgspec.structs.replace(case, tier=tier)
    if tier == "gpu" and (obstacle := find_capacity().obstacle(real)):
        pytest.skip(obstacle)

    outcome = launcher.launch(LaunchRequest(case=real, round=0, probe_steps=1))

    assert isinstance(outcome, LaunchResult), f"{outcome}\n{getattr(outcome, 'traceback', '')}"
    assert {rank.structure for rank in outcome.ranks} == {counted(launcher, case)}
    assert outcome.ranks[0].structure == shipped(case)


HAND = {
    "fsdp": (256, {"strategy": "fsdp", **GPT}),
    "bf16": (3, {"strategy": "fsdp", **GPT, "precision": "bf16"}),
    "fp16": (4, {"strategy": "fsdp", **GPT, "precision": "fp16"}),
    "whole model": (64, {"strategy": "fsdp", **GPT, "fsdp": {"wrap": "model"}}),
    "kept": (16, {"strategy": "fsdp", **GPT, "fsdp": {"reshard_after_forward": False}}),
    "topk": (256, {**MLP, "comm_hooks": [{"kind": "topk", "ratio": 0.013}]}),
    "powersgd": (3, {**MLP, "comm_hooks": [{"kind": "powersgd", "rank": 3}]}),
    "unused": (128, {**RESNET, "ddp": {**SMALL, "find_unused_parameters": True}}),
}
OVER_NODES = {
    "hsdp": (8, {"strategy": "fsdp", **GPT, "fsdp": {"replicate": "nodes"}}),
    "groups of nodes": (8, {**MLP, "comm_hooks": [{"kind": "hierarchical", "group_size": "node"}]}),
    "topk between groups": (
        4,
        {**MLP, "comm_hooks": [{"kind": "hierarchical", "group_size": 2, "ratio": 0.02}]},
    ),
    "post-local SGD": (
        4,
        {**MLP, "comm_hooks": [{"kind": "post_local_sgd", "group_size": "node"}]},
    ),
}


@pytest.mark.parametrize(
    ("ranks", "changes"),
    [
        pytest.param(*one, id=name, marks=[pytest.mark.slow] if name == "unused" else [])
        for name, one in HAND.items()
    ],
)
def test_what_is_counted_is_what_is_computed_by_hand(launcher, changes, ranks):
    (case,) = make_cases(world_sizes=[ranks], batch_sizes=[2], **changes)

    assert counted(launcher, case) == expected_structure(case)


@pytest.mark.parametrize(("nodes", "changes"), OVER_NODES.values(), ids=OVER_NODES)
def test_over_nodes_too(launcher, changes, nodes):
    (case,) = make_cases(world_sizes=[64], batch_sizes=[2], **changes)
    case = msgspec.structs.replace(case, nodes=nodes)

    assert counted(launcher, case) == expected_structure(case)


@pytest.mark.parametrize(
    ("name", "ranks"),
    [
        ("cpu_quick", 256),
        pytest.param("cpu/resnet50_scaling", 8, marks=pytest.mark.slow),
        ("cpu/fsdp_scaling", 64),
    ],
)
def test_the_file_states_what_any_number_of_ranks_does(launcher, shipped, name, ranks):
    (case,) = suite(name, world_sizes=(ranks,), batch_sizes=(4,))

    assert counted(launcher, case) == shipped(case)


def test_smaller_buckets_are_a_regression_of_the_structure(launcher):
    case = suite("cpu_quick", steps=6)[1]
    smaller = msgspec.structs.replace(case.training.ddp, bucket_cap_mb=0.5)
    case = with_training(case, ddp=smaller)
    stored = WorkStore(ROOT / "baselines").structures(case.suite)[case.id]

    outcome = launcher.launch(LaunchRequest(case=case, round=0))

    verdict = compare_structure([outcome], stored.step.structure)
    assert verdict.outcome == "REGRESSION"
    assert "buckets 6,297,600 → " in verdict.reason
