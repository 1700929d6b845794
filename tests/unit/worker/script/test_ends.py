"""A script that ends on one rank: it must have ended on all of them, after as many steps."""

from __future__ import annotations

import pytest
import torch.distributed as dist

from ddp_perf.errors import ScriptError
from ddp_perf.worker.script.steps import await_other_ends
from tests.unit.worker.script.scripts import make_script_case


@pytest.fixture
def await_others(monkeypatch):
    """``await_others({rank: steps})``: rank 1 has ended after 20 steps, and these others too."""
    store = dist.HashStore()
    monkeypatch.setattr(dist.distributed_c10d, "_get_default_store", lambda: store)
    case = make_script_case(world_sizes=[3], step_deadline_s=0.02)

    def wait(others):
        for rank, steps in others.items():
            store.set(f"ddp_perf/ended/{rank}", str(steps))
        await_other_ends(case, 1, "at the end of the file", 20)

    return wait


def test_ranks_that_end_at_the_same_step_go_on_together(await_others):
    await_others({0: 20, 2: 20})


def test_a_rank_that_ended_before_the_others_names_them(await_others):
    with pytest.raises(
        ScriptError, match=r"after 20 steps, while rank 0 goes on and rank 2 goes on; let"
    ):
        await_others({})


def test_a_rank_that_trained_longer_is_named(await_others):
    with pytest.raises(
        ScriptError, match=r"after 20 steps, while rank 2 ended after 21; let each rank"
    ):
        await_others({0: 20, 2: 21})


def test_the_rank_that_trained_longest_waits_for_the_error_of_another_one(await_others):
    """Its own figures are whole, but a rank that trained less cannot follow it."""
    with pytest.raises(ScriptError, match=r"after 20 steps, while rank 0 ended after 19"):
        await_others({0: 19, 2: 20})
