"""Strategies and options of a suite: their cases and ids, and the combinations refused."""

from __future__ import annotations

import pytest

from ddp_perf.config.loading import Overrides, load_cases
from ddp_perf.core.strategy import (
    DdpOptions,
    FsdpOptions,
    HierarchicalHook,
    PowerSgdHook,
    TopKHook,
)
from tests.builders import make_cases
from tests.unit.config.refusals import refusal

TOPK = {"kind": "topk"}
HIERARCHICAL = {"kind": "hierarchical", "group_size": 2}


def two_ranks(**changes):
    return make_cases(world_sizes=[2], **changes)[0]


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        pytest.param({}, "mlp-ddp-fp32-ws2-b64", id="default"),
        pytest.param({"strategy": "fsdp"}, "mlp-fsdp-fp32-ws2-b64", id="fsdp"),
        pytest.param(
            {"strategy": "fsdp", "fsdp": {"cpu_offload": True, "wrap": "model"}},
            "mlp-fsdp-fp32-ws2-b64-wrap=model-cpu_offload=true",
            id="fsdp options",
        ),
        pytest.param(
            {"comm_hooks": [TOPK], "precision": "bf16", "batch_sizes": [128]},
            "mlp-ddp-bf16-ws2-b128-topk",
            id="hook",
        ),
        pytest.param(
            {"comm_hooks": [{"kind": "topk", "ratio": 0.1}]},
            "mlp-ddp-fp32-ws2-b64-topk-ratio=0.1",
            id="hook's argument",
        ),
        pytest.param(
            {"comm_hooks": [HIERARCHICAL]},
            "mlp-ddp-fp32-ws2-b64-hierarchical-group_size=2",
            id="hook's required argument",
        ),
        pytest.param(
            {
                "gradient_accumulation": 4,
                "activation_checkpointing": True,
                "compile": True,
                "variant": "mine",
            },
            "mlp-ddp-fp32-ws2-b64-accumulate4-checkpoint-compile-mine",
            id="others",
        ),
    ],
)
def test_the_id_names_options_that_differ_from_the_defaults(changes, name):
    assert two_ranks(**changes).id == name


def test_a_case_has_only_the_options_of_its_strategy():
    fsdp = two_ranks(strategy="fsdp", fsdp={"reshard_after_forward": False})
    ddp = two_ranks(comm_hooks=[TOPK])

    assert fsdp.training.ddp is None
    assert fsdp.training.fsdp == FsdpOptions(reshard_after_forward=False)
    options = ddp.training
    assert (options.ddp, options.fsdp, options.comm_hook) == (DdpOptions(), None, TopKHook())


def test_each_hook_is_a_case_and_the_plain_rank_is_measured_once():
    cases = make_cases(comm_hooks=[None, {"kind": "powersgd"}, HIERARCHICAL])

    assert [case.training.comm_hook for case in cases] == [
        None,
        None,
        PowerSgdHook(),
        HierarchicalHook(group_size=2),
    ]
    assert [case.strategy for case in cases] == ["none", "ddp", "ddp", "ddp"]
    assert {case.single for case in cases[1:]} == {cases[0].id}


def test_against_the_wrapped_rank_a_hook_is_compared_with_itself():
    cases = make_cases(comm_hooks=[None, TOPK], denominator="ddp-1")

    assert [case.single for case in cases] == [None, None, cases[0].id, cases[1].id]


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_the_one_rank_case_shares_options_that_are_not_part_of_a_strategy(strategy):
    one, two = make_cases(
        strategy=strategy,
        precision="bf16",
        gradient_accumulation=2,
        activation_checkpointing=True,
    )

    assert (one.strategy, two.strategy) == ("none", strategy)
    for case in (one, two):
        assert case.precision == "bf16"
        assert case.training.gradient_accumulation == 2
        assert case.training.activation_checkpointing
    assert one.samples_per_step == 128


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        pytest.param(
            {"strategy": "none"},
            "strategy: none synchronises nothing, so 2 ranks would train apart",
            id="none on two ranks",
        ),
        pytest.param(
            {"strategy": "fsdp", "ddp": {"static_graph": True}},
            "ddp: these are options of strategy ddp, but the strategy is fsdp",
            id="ddp options of fsdp",
        ),
        pytest.param(
            {"fsdp": {"cpu_offload": True}},
            "fsdp: these are options of strategy fsdp, but the strategy is ddp",
            id="fsdp options of ddp",
        ),
        pytest.param(
            {"strategy": "fsdp", "comm_hooks": [TOPK]},
            "comm_hooks: only DDP has communication hooks, but the strategy is fsdp",
            id="hooks of fsdp",
        ),
        pytest.param({"precision": "tf32"}, "precision: tf32 is a format of GPUs", id="tf32"),
        pytest.param(
            {"cuda_graphs": True}, "cuda_graphs: this is an option of GPUs", id="cuda graphs"
        ),
        pytest.param(
            {"cudnn_benchmark": True}, "cudnn_benchmark: this is an option of GPUs", id="cudnn"
        ),
        *(
            pytest.param(
                {"tier": "gpu", "cuda_graphs": True, **changes},  # type: ignore[dict-item]
                f"cuda_graphs: a step with {name} cannot be captured; remove one of them",
                id=f"captured {name}",
            )
            for name, changes in {
                "strategy: fsdp": {"strategy": "fsdp"},
                "comm_hooks": {"comm_hooks": [None, TOPK]},
                "data.num_workers": {"data": {"num_workers": 0}},
                "ddp.find_unused_parameters": {"ddp": {"find_unused_parameters": True}},
                "activation_checkpointing": {"activation_checkpointing": True},
                "compile": {"compile": True},
            }.items()
        ),
        pytest.param(
            {"tolerances": {"energy": 0.05}},
            "tolerances.energy: only GPUs count their energy",
            id="energy",
        ),
        pytest.param(
            {"compile": True, "ddp": {"bucket_cap_mb": 0.5}},
            "ddp.bucket_cap_mb: torch.compile cannot split a model at buckets under 1 MiB"
            " (got 0.5)",
            id="compiled small buckets",
        ),
        pytest.param(
            {"comm_hooks": [HIERARCHICAL], "world_sizes": [2, 3]},
            "comm_hooks: groups of 2 ranks do not divide 3",
            id="groups",
        ),
        pytest.param(
            {"comm_hooks": [HIERARCHICAL], "denominator": "ddp-1"},
            "comm_hooks: groups of 2 ranks do not divide 1",
            id="groups at one rank",
        ),
        pytest.param(
            {"comm_hooks": [{"kind": "powersgd", "start_step": 5}]},
            "comm_hooks: powersgd starts with step 5, after 2 warm-ups",
            id="start among the measured steps",
        ),
        pytest.param({"comm_hooks": [TOPK, TOPK]}, "comm_hooks: TopKHook", id="hook twice"),
        pytest.param({"comm_hooks": []}, "comm_hooks: expected a list of length >= 1", id="none"),
        pytest.param(
            {"comm_hooks": [{"kind": "topk", "ration": 0.1}]},
            "comm_hooks[0].ration: unknown field; did you mean 'ratio'?",
            id="misspelt argument",
        ),
        pytest.param(
            {"comm_hooks": [{"kind": "topkk"}]},
            "comm_hooks[0].kind: 'topkk' is not one of fp16, bf16, powersgd, topk",
            id="misspelt hook",
        ),
        pytest.param(
            {"comm_hooks": [{"kind": "hierarchical"}]},
            "comm_hooks[0].group_size: required, but missing",
            id="missing argument",
        ),
        pytest.param(
            {"comm_hooks": [{"kind": "hierarchical", "group_size": "nodes"}]},
            "comm_hooks[0].group_size: 'nodes' is not one of node; did you mean 'node'?",
            id="misspelt group",
        ),
        pytest.param(
            {"comm_hooks": [{"kind": "topk", "ratio": 0}]},
            "comm_hooks[0].ratio: expected a number > 0",
            id="nothing sent",
        ),
        pytest.param(
            {"comm_hooks": [{"kind": "topk", "start_step": 1}]},
            "comm_hooks[0].start_step: expected a whole number >= 2",
            id="before the buckets are rebuilt",
        ),
        pytest.param({"strategy": "dpp"}, "did you mean 'ddp'?", id="misspelt strategy"),
        pytest.param(
            {"fsdp": {"wrap": "blocks"}}, "fsdp.wrap: 'blocks' is not one of", id="misspelt wrap"
        ),
        pytest.param(
            {"gradient_accumulation": 0},
            "gradient_accumulation: expected a whole number >= 1",
            id="no step",
        ),
    ],
)
def test_options_that_exclude_each_other_are_refused_with_field_and_reason(
    suite_file, changes, said
):
    assert said in refusal(suite_file(**changes))


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"strategy": "none", "world_sizes": [1]}, id="none on one rank"),
        pytest.param({"precision": "tf32", "tier": "gpu"}, id="tf32 on GPUs"),
        pytest.param(
            {"tier": "gpu", "cuda_graphs": True, "cudnn_benchmark": True, "precision": "fp16"},
            id="captured",
        ),
        pytest.param({"compile": True, "ddp": {"bucket_cap_mb": 1}}, id="compiled buckets"),
        pytest.param(
            {"compile": True, "ddp": {"static_graph": True}, "gradient_accumulation": 2},
            id="compiled static graph with accumulation",
        ),
        pytest.param({"comm_hooks": [{"kind": "bf16"}]}, id="bf16 hook over gloo"),
        pytest.param({"comm_hooks": [{"kind": "powersgd"}]}, id="powersgd over gloo"),
        pytest.param({"comm_hooks": [HIERARCHICAL], "world_sizes": [1, 2, 4]}, id="groups"),
    ],
)
def test_combinations_that_work_are_allowed(suite_file, changes):
    assert load_cases([suite_file(**changes)], Overrides())


def test_overrides_that_exclude_options_of_the_file_are_refused(suite_file):
    message = refusal(suite_file(comm_hooks=[HIERARCHICAL]), world_sizes=(3,))

    assert message.startswith(", changed by the command line: ")
    assert "do not divide 3" in message
