"""The collectives of a step that are repeated alone: those of all ranks only."""

from __future__ import annotations

import pytest
import torch.distributed as dist

from ddp_perf.core.launch import Collective
from ddp_perf.worker.lone_group import LONE, register_lone_backend
from ddp_perf.worker.script.groups import groups_of
from ddp_perf.worker.step_probe import communication_s
from tests.unit.worker.contexts import CPU
from tests.unit.worker.script.scripts import destroyed_group, make_script_case

COLLECTIVES = [Collective(kind="all_reduce", dtype="float32", bytes=64)]


@pytest.mark.parametrize(("ranks", "rounds"), [([0, 1, 2, 3], 2), ([0, 2], 0), ([0], 0)])
def test_a_script_with_groups_of_some_ranks_may_use_those(ranks, rounds):
    """Then what is recorded of its collectives does not show which ranks they were of."""
    register_lone_backend()
    with groups_of(LONE, 0, 4), destroyed_group():
        dist.init_process_group()
        dist.new_group(ranks)

        seconds = communication_s(make_script_case(), COLLECTIVES, lambda: None, CPU, 2)

    assert len(seconds) == rounds
