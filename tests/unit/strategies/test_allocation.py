"""A model on the meta device is allocated after it is sharded, with the values of the whole one."""

from __future__ import annotations

from contextlib import contextmanager

import pytest
import torch
import torch.distributed as dist
from torch import nn

from ddp_perf.errors import ConfigError
from ddp_perf.strategies.strategy import Parts, apply_strategy
from ddp_perf.worker.counting.dry import DryRun
from ddp_perf.worker.lone_group import init_lone_group
from tests.builders import make_cases
from tests.torch_versions import needs_cpu_shards

CPU = torch.device("cpu")


@contextmanager
def rank_of(rank, ranks):
    init_lone_group(rank, ranks)
    try:
        yield
    finally:
        dist.destroy_process_group()


def build():
    """Return a model whose rows no number of ranks here divides, and whose last layer has one."""
    with torch.device("meta"):
        return nn.Sequential(nn.Linear(3, 7), nn.Linear(7, 5), nn.Linear(5, 1))


def fill(name, parameter):
    parameter.normal_(std=2.0 if name.endswith("bias") else 1.0)


def applied(rank=0, *, ranks=1, nodes=1, model=None, **suite):
    """Return the parameters that a rank keeps under the strategy of the suite."""
    model = build() if model is None else model
    suite = {"strategy": "fsdp", "denominator": "ddp-1", **suite}
    (case,) = make_cases(world_sizes=[ranks], ranks_per_node=ranks // nodes, **suite)
    torch.manual_seed(0)
    with rank_of(rank, ranks):
        parts = Parts(model=model, blocks=list(model), fill=fill)
        module = apply_strategy(case, parts, CPU).module
        kept = {name: parameter.detach() for name, parameter in module.named_parameters()}
        return {
            name.removeprefix("module."): getattr(one, "to_local", lambda one=one: one)().clone()
            for name, one in kept.items()
        }


@pytest.fixture
def whole():
    torch.manual_seed(0)
    model = build().to_empty(device=CPU)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            fill(name, parameter)
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


@pytest.mark.parametrize("strategy", ["none", "ddp", pytest.param("fsdp", marks=needs_cpu_shards)])
def test_one_rank_has_the_values_of_the_whole_model(whole, strategy):
    torch.testing.assert_close(applied(strategy=strategy), whole, rtol=0, atol=0)


@needs_cpu_shards
@pytest.mark.parametrize("ranks", [2, 3, 4])
@pytest.mark.parametrize("options", [{}, {"wrap": "model"}, {"cpu_offload": True}], ids=str)
def test_the_shards_of_all_ranks_are_the_whole_model(whole, ranks, options):
    shards = [applied(rank, ranks=ranks, fsdp=options) for rank in range(ranks)]

    together = {name: torch.cat([shard[name] for shard in shards]) for name in whole}
    torch.testing.assert_close(together, whole, rtol=0, atol=0)
    assert len(shards[-1]["2.weight"]) == 0  # one row, which the first rank has


@needs_cpu_shards
def test_each_node_shards_a_copy(whole):
    """The last of two ranks of the last of two nodes has the last half of the rows."""
    last = applied(3, ranks=4, nodes=2, fsdp={"replicate": "nodes"})

    halves = {name: parameter[-(-len(parameter) // 2) :] for name, parameter in whole.items()}
    torch.testing.assert_close(last, halves, rtol=0, atol=0)


def test_a_model_with_buffers_is_refused_since_nothing_would_fill_them():
    with torch.device("meta"):
        model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))

    with pytest.raises(ConfigError, match=r"no buffers, and the model has '1.running_mean'"):
        applied(strategy="none", model=model)


def test_a_parameter_with_two_names_is_refused_since_it_would_become_two():
    with torch.device("meta"):
        model = nn.Sequential(nn.Embedding(4, 3), nn.Linear(3, 4, bias=False))
        model[1].weight = model[0].weight

    with pytest.raises(ConfigError, match="a parameter of the model has two names"):
        applied(strategy="none", model=model)


def test_a_dry_run_leaves_a_model_on_the_meta_device():
    with DryRun():
        model = build()

    assert {parameter.device.type for parameter in model.parameters()} == {"meta"}
