"""Post-local SGD: groups train separately, and parameters are averaged periodically."""

from __future__ import annotations

import pytest
import torch

from tests.correctness.training import (
    TOLERANCES,
    assert_ranks_have_the_same_bits,
    relative_error,
)
from tests.correctness.workloads.models import build_model, global_batch, loss_of, optimizer_of

STEPS, START, PERIOD, GROUPS = 7, 2, 3, 2  # steps 2, 5 and 8 average all parameters
HOOK = {"kind": "post_local_sgd", "group_size": 2, "period": PERIOD, "start_step": START}


@pytest.fixture
def hooked(trained):
    """A trained case with four ranks in two groups."""
    return trained("Mlp", 4, steps=STEPS, comm_hooks=[HOOK])


def averages(step):
    return step >= START and (step - START) % PERIOD == 0


def one_process_for_each_group():
    """Yield the parameters of each group after each step; before START all use one batch."""
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
    """The recorder runs before parameters are averaged, so an average shows one step later."""
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
    assert_ranks_have_the_same_bits(hooked, START - 1)


def test_the_counted_step_averages_parameters(hooked):
    """This is independent of the number of timed steps, so compared ranks have equal bits."""
    structure = hooked.structure

    *within, across = structure.collectives
    assert [c.bytes for c in within] == list(structure.buckets)
    assert across.bytes == structure.gradient_bytes
    assert len({rank.digest for rank in hooked.result.ranks}) == 1


def test_a_step_that_the_scaler_skips_blocks_no_rank(trained):
    """All ranks must average, also if GradScaler skips the step of one group."""
    half = trained("Mlp", 4, steps=1, comm_hooks=[HOOK], precision="fp16", dtype="float32")

    assert len({rank.digest for rank in half.result.ranks}) == 1
