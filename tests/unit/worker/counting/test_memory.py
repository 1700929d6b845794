"""The peak and the kept memory of a known sequence of operations."""

from __future__ import annotations

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ddp_perf.worker.counting.step_recorder import MemoryTracker

SIZE = 4000  # bytes of a thousand float32


class Tracked(TorchDispatchMode):
    """All operations have the spot that the test sets."""

    def __init__(self):
        super().__init__()
        self.memory = MemoryTracker()
        self.spot = "here"

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        self.memory.add(out, args, self.spot)
        return out


@pytest.fixture
def tracked():
    mode = Tracked()
    with mode, mode.memory.track_resizing(lambda: mode.spot):
        yield mode


def test_the_peak_is_the_most_that_lives_at_a_time(tracked):
    kept = torch.empty(1000)
    for _ in range(3):
        two = torch.empty(2000)
        view = two[:10]
        del two
        del view

    memory = tracked.memory
    assert memory.peak == 3 * SIZE
    assert (memory.allocations, memory.allocated) == (4, 7 * SIZE)
    assert memory.kept == {"here": SIZE}
    del kept


def test_what_is_freed_and_allocated_again_at_a_spot_is_not_kept(tracked):
    gradient = torch.empty(1000)
    tracked.memory.begin_step()
    tracked.spot = "elsewhere"
    buffer = torch.empty(500)
    tracked.spot = "here"
    del gradient
    gradient = torch.empty(1000)

    assert tracked.memory.kept == {"here": 0, "elsewhere": SIZE // 2}
    assert tracked.memory.peak == SIZE // 2
    del gradient, buffer


def test_memory_that_only_autograd_holds_lives(tracked):
    weight = torch.ones(1000, requires_grad=True)
    tracked.memory.begin_step()
    loss = weight.exp().sum()

    assert tracked.memory.kept["here"] == SIZE + 4
    del loss
    assert tracked.memory.kept["here"] == 0


def test_an_emptied_storage_is_freed_and_a_filled_one_is_allocated(tracked):
    shard = torch.empty(1000)
    tracked.memory.begin_step()
    shard.untyped_storage().resize_(0)
    emptied = tracked.memory.kept["here"]
    shard.untyped_storage().resize_(SIZE)

    assert emptied == -SIZE
    assert (tracked.memory.allocations, tracked.memory.kept["here"]) == (1, 0)


def test_a_change_in_place_and_a_view_allocate_nothing(tracked):
    tensor = torch.empty(1000)
    tracked.memory.begin_step()
    tensor.add_(1).view(10, 100)

    assert tracked.memory.allocations == 0


def test_what_lives_when_a_step_begins_is_held(tracked):
    tracked.spot = "gradient"
    gradient = torch.empty(1000)
    tracked.spot = "elsewhere"
    freed = torch.empty(1000)
    del freed

    tracked.memory.begin_step()
    later = torch.empty(1000)

    assert {spot: size for spot, size in tracked.memory.held.items() if size} == {"gradient": SIZE}
    assert gradient.nbytes == later.nbytes == SIZE
