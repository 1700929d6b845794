"""Counting a step on one rank alone: what is computed, and the ranks that a launch has, change
nothing; a failure is described as that of a launch."""

from __future__ import annotations

import functools
from pathlib import Path

import msgspec
import pytest

from ddp_perf.core.launch import LaunchFailure, LaunchRequest, LaunchResult
from ddp_perf.core.work import CountRequest, StepWork
from tests.builders import make_request
from tests.torch_versions import skip_if_shards_need_a_gpu

WORKLOADS = Path(__file__).parent / "workloads"
# The embedding is above the size to which a dry run computes.
GPT = {"max_seq_len": 16, "vocab_size": 2048, "d_model": 64, "n_heads": 2, "num_layers": 2}
FSDP = {"workload": "gpt", "model": GPT, "strategy": "fsdp"}
DDP = {"workload": "gpt", "model": GPT, "ddp": {"bucket_cap_mb": 0.5}}
TEXT = {
    "dataset": "ag_news",
    "max_seq_len": 16,
    "d_model": 32,
    "n_heads": 2,
    "num_layers": 1,
    "dim_feedforward": 64,
    "vocab_size": 4096,
    "dropout": 0.1,
}


def make_counted(*, ranks=2, ranks_per_node=None, **suite):
    """Return a case of ``ranks`` ranks."""
    suite = {"world_sizes": [ranks], "denominator": "ddp-1", **suite}
    workload = suite.pop("workload")
    return make_request(workload, ranks_per_node=ranks_per_node, **suite).case


def count(launcher, case, **request):
    """Return the counted step."""
    skip_if_shards_need_a_gpu(case)
    work = launcher.count(CountRequest(case=case, import_paths=(str(WORKLOADS),), **request))
    assert isinstance(work, StepWork), f"{work}\n{work.traceback}\n{work.output}"
    return work


@pytest.fixture(scope="module")
def dry(launcher):
    """``dry(name)``: the dry count of a case, which is counted once."""
    return functools.cache(lambda name: count(launcher, make_counted(**CASES[name])))


CASES = {
    "ddp": DDP,
    "accumulation": {**DDP, "gradient_accumulation": 2},
    "unused": {**DDP, "ddp": {"find_unused_parameters": True}},
    "fp16 hook": {**DDP, "comm_hooks": [{"kind": "fp16"}]},
    "top-k": {**DDP, "comm_hooks": [{"kind": "topk", "ratio": 0.01}]},
    "powersgd": {**DDP, "comm_hooks": [{"kind": "powersgd", "rank": 2}]},
    "hierarchical": {**DDP, "ranks": 4, "comm_hooks": [{"kind": "hierarchical", "group_size": 2}]},
    "gradient scaler": {**DDP, "precision": "fp16"},
    "checkpoints": {**DDP, "activation_checkpointing": True},
    "loader": {
        "workload": "text_transformer",
        "model": TEXT,
        "batch_sizes": [8],
        "data": {"num_workers": 2},
    },
    "fsdp": FSDP,
    "fsdp without reshard": {**FSDP, "fsdp": {"reshard_after_forward": False}},
    "hsdp": {**FSDP, "ranks": 4, "ranks_per_node": 2, "fsdp": {"replicate": "nodes"}},
    "as on a gpu": {**FSDP, "tier": "gpu"},
}
# A hook, a scaler or a loader acts on values; the others dispatch what test_dry.py computes.
OF_VALUES = ["ddp", "top-k", "powersgd", "gradient scaler", "loader", "fsdp", "as on a gpu"]
# tests/correctness/test_structures.py launches the base of DDP and FSDP and the lossy hooks.
LAUNCHED = [
    *("accumulation", "unused", "checkpoints", "hierarchical"),
    *(
        pytest.param(name, marks=pytest.mark.slow)
        for name in ("fp16 hook", "gradient scaler", "loader", "fsdp without reshard", "hsdp")
    ),
]


@pytest.mark.parametrize("name", OF_VALUES)
def test_a_dry_run_counts_what_a_computed_step_does(launcher, dry, name):
    computed = count(launcher, make_counted(**CASES[name]), compute=True)

    assert not dry(name).computed
    assert computed.computed
    assert dry(name) == msgspec.structs.replace(computed, computed=False)


@pytest.mark.parametrize("name", ["top-k", "fsdp"])
def test_another_process_counts_the_same(launcher, dry, name):
    assert count(launcher, make_counted(**CASES[name])) == dry(name)


@pytest.mark.parametrize("name", LAUNCHED)
def test_a_lone_rank_has_the_structure_of_real_ones(launcher, nodes_launcher, dry, name):
    case = make_counted(**CASES[name], steps=1, warmup=0, launches=1)
    of_case = nodes_launcher if case.nodes > 1 else launcher
    outcome = of_case.launch(LaunchRequest(case=case, round=0))
    assert isinstance(outcome, LaunchResult), str(outcome)

    assert {rank.structure for rank in outcome.ranks} == {dry(name).structure}


@pytest.mark.parametrize("name", ["hierarchical", "hsdp"])
def test_the_last_rank_has_the_structure_of_the_first(launcher, dry, name):
    case = make_counted(**CASES[name])

    assert count(launcher, case, rank=case.world_size - 1).structure == dry(name).structure


@pytest.mark.parametrize("rank", [100, 255])
def test_any_rank_of_256_is_counted(launcher, rank):
    case = make_counted(**FSDP, ranks=256)
    work = count(launcher, case, rank=rank)

    shard = 4 * sum(-(-rows // 256) for rows in (2048,)) * 64  # of the tied embedding alone
    assert {one.kind for one in work.collectives} == {"all_gather", "reduce_scatter"}
    assert max(one.bytes for one in work.collectives) > 256 * shard


def test_optimizers_work_on_lists_of_tensors_as_on_the_tier(launcher, dry):
    gpu = count(launcher, make_counted(**DDP, tier="gpu"))
    names = {
        tier: {one.name for one in work.operations}
        for tier, work in {"cpu": dry("ddp"), "gpu": gpu}.items()
    }

    assert "aten._foreach_addcdiv_" in names["gpu"] - names["cpu"]


def test_a_batch_of_32_gb_takes_little_memory(launcher):
    work = count(launcher, make_counted(workload="counted:large_batch"))

    assert max(one.read for one in work.operations) > 2**35


def test_a_step_whose_sizes_depend_on_values_is_counted_by_computing(launcher):
    case = make_counted(workload="counted:masked")

    failure = launcher.count(CountRequest(case=case, import_paths=(str(WORKLOADS),)))

    assert isinstance(failure, LaunchFailure)
    assert "aten.index.Tensor: its result depends on values" in failure.detail
    assert count(launcher, case, compute=True).computed


def test_computing_in_more_memory_than_there_is_fails_before_the_kernel_ends_processes(launcher):
    case = make_counted(workload="counted:beyond_memory")

    failure = launcher.count(CountRequest(case=case, compute=True, import_paths=(str(WORKLOADS),)))

    assert isinstance(failure, LaunchFailure)
    assert failure.kind == "exception"
    assert "allocate" in failure.detail


def faulty(fault, **suite):
    return make_counted(
        workload="faulty:build", model={"fault": fault, "fault_rank": 0, "at_step": 2}, **suite
    )


def failure_of(launcher, case):
    failure = launcher.count(CountRequest(case=case, import_paths=(str(WORKLOADS),)))
    assert isinstance(failure, LaunchFailure)
    assert failure.rank in (0, None)
    return failure


def test_the_error_of_a_counted_rank_has_the_users_frames_and_its_output(launcher):
    failure = failure_of(launcher, faulty("raise"))

    assert failure.kind == "exception"
    assert failure.detail == "ValueError: the data are broken"
    assert "in _raise" in failure.user_frames
    assert "about to raise" in failure.output


@pytest.mark.slow
def test_a_counted_rank_that_hangs_is_ended_after_the_deadline_of_the_start(launcher):
    failure = failure_of(launcher, faulty("hang", start_deadline_s=5, step_deadline_s=1))

    assert failure.kind == "hang"
    assert "_FAULTS" not in failure.output
    assert "in wait" in failure.stacks["rank 0"]


def test_a_count_may_take_longer_in_a_step_than_a_step_may(launcher):
    """A step that is counted on a CPU is slower than on the GPU that it is meant for."""
    case = make_counted(workload="counted:slow", start_deadline_s=60, step_deadline_s=0.1)

    assert count(launcher, case).operations


@pytest.mark.parametrize("fault", ["exit", "kill"])
def test_the_end_of_a_counted_rank_is_described(launcher, fault):
    failure = failure_of(launcher, faulty(fault))

    assert failure.detail.startswith(
        {"exit": "exited with code 3", "kill": "killed by SIGKILL"}[fault]
    )


def test_a_lost_server_is_replaced(launcher):
    assert failure_of(launcher, faulty("kill-server")).kind == "server"
    assert count(launcher, faulty("nothing")).operations
