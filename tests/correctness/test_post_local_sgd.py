"""Post-local SGD: groups train apart, and all ranks meet now and then."""

from __future__ import annotations

import pytest
import torch

from tests.correctness.training import (
    TOLERANCES,
    assert_ranks_hold_the_same_bits,
    relative_error,
)
from tests.correctness.workloads.models import build_model, global_batch, loss_of, optimizer_of

STEPS, START, PERIOD, GROUPS = 7, 2, 3, 2  # steps 2, 5 and 8 average all parameters
HOOK = {"kind": "post_local_sgd", "group_size": 2, "period": PERIOD, "start_step": START}


@pytest.fixture
def hooked(trained):
    """Four ranks in two groups."""
    return trained("Mlp", 4, steps=STEPS, comm_hooks=[HOOK])


def averages(step):
    return step >= START and (step - START) % PERIOD == 0


def one_process_for_each_group():
    """Parameters of each group after each step; one batch for all before START."""
    modules = [build_model("Mlp", "float64") for _ in range(GROUPS)]
    optimizers = [optimizer_of(module.parameters()) for module in modules]
    for step in range(STEPS):
        batch = global_batch(step, "float64")
        for group, (module, optimizer) in enumerate(zip(modules, optimizers, strict=True)):
            own = batch if step < START else tuple(part.chunk(GROUPS)[group] for part in batch)
            optimizer.zero_grad()
            loss_of(module, own).backward()
            optimizer.step()
        if averages(step):
            with torch.no_grad():
                for parameters in zip(*(m.parameters() for m in modules), strict=True):
                    mean = sum(parameters) / GROUPS
                    for parameter in parameters:
                        parameter.copy_(mean)
        yield [{n: p.detach().clone() for n, p in m.named_parameters()} for m in modules]


def test_post_local_sgd_equals_one_process_for_each_group(hooked):
    """The recorder looks before the parameters are averaged; a step later it shows."""
    for step, groups in enumerate(one_process_for_each_group()):
        if averages(step):
            continue
        for rank, record in enumerate(hooked.ranks):
            expected = groups[rank // 2]
            assert relative_error(record.parameters[step], expected) < TOLERANCES["float64"]


def test_groups_differ_between_two_averages(hooked):
    one, other = (hooked.ranks[rank].parameters[-1] for rank in (0, 2))

    assert not averages(STEPS - 1)
    assert relative_error(one, other) > 1e-3


def test_all_ranks_are_equal_before_the_start_step(hooked):
    assert_ranks_hold_the_same_bits(hooked, START - 1)


def test_the_counted_step_averages_parameters(hooked):
    """However many steps were measured; so the ranks that are compared hold the same bits."""
    structure = hooked.structure

    *within, across = structure.collectives
    assert [c.bytes for c in within] == list(structure.buckets)
    assert across.bytes == structure.gradient_bytes
    assert len({rank.digest for rank in hooked.result.ranks}) == 1


def test_a_step_that_the_scaler_skips_blocks_no_rank(trained):
    """The averages must be taken on all ranks, also where GradScaler skips a group's step."""
    half = trained("Mlp", 4, steps=1, comm_hooks=[HOOK], precision="fp16", dtype="float32")

    assert len({rank.digest for rank in half.result.ranks}) == 1
