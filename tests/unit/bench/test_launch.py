"""The GPU of a rank that something else started, by what every rank sees."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from torch.distributed import HashStore

from ddp_perf.bench import launch
from ddp_perf.bench.flags import Position
from ddp_perf.bench.launch import Meeting, gpu_index, run_as_rank
from ddp_perf.core.launch import LaunchRequest
from ddp_perf.errors import LaunchError
from tests.builders import make_case, make_gpu_machine
from tests.recordings import FakeNvml


def meetings(local_ranks):
    """Return the meeting of each rank, over one store."""
    store, count = HashStore(), len(local_ranks)
    return [
        Meeting(store, Position(rank=rank, local_rank=local, world_size=count, alone=False))
        for rank, local in enumerate(local_ranks)
    ]


def outcomes(local_ranks, seen):
    """Return the index of each rank, or its error, if all ask at the same time."""
    with ThreadPoolExecutor(len(seen)) as threads:
        asked = [
            threads.submit(gpu_index, one, gpus)
            for one, gpus in zip(meetings(local_ranks), seen, strict=True)
        ]
    return [str(one.exception()) if one.exception() else one.result() for one in asked]


@pytest.mark.parametrize(
    ("local_ranks", "seen", "indices"),
    [
        pytest.param([0, 1], [["GPU-a", "GPU-b"]] * 2, [0, 1], id="all ranks see all GPUs"),
        pytest.param([0, 1], [["GPU-a"], ["GPU-b"]], [0, 0], id="each sees its own"),
        pytest.param([0, 1, 0, 1], [["GPU-a"], ["GPU-b"], ["GPU-c"], ["GPU-d"]], [0] * 4, id="2x2"),
        pytest.param([0, 1], [["GPU-a"], ["GPU-a", "GPU-b"]], [0, 1], id="not alike"),
        pytest.param([0, 1], [[], []], [0, 1], id="no driver: torch refuses"),
    ],
)
def test_a_rank_that_sees_one_gpu_of_its_own_uses_it(local_ranks, seen, indices):
    assert outcomes(local_ranks, seen) == indices


def test_ranks_that_see_the_same_gpu_alone_all_fail_with_its_name():
    found = outcomes([0, 1, 2], [["GPU-a"], ["GPU-b"], ["GPU-a"]])

    assert found == [
        "ranks 0 and 2 see one GPU, and the same one: GPU-a; make one GPU visible for each rank,"
        " or start fewer ranks"
    ] * len(found)


@pytest.mark.parametrize(
    ("tier", "other", "expected"),
    [("gpu", '["GPU-other"]', 0), ("gpu", '["GPU-other", "GPU-more"]', 1), ("cpu", "[]", 1)],
    ids=["one GPU each", "another launcher", "cores"],
)
def test_the_second_rank_is_placed_by_what_nvml_shows_it(monkeypatch, tier, other, expected):
    machine = make_gpu_machine("Tesla T4")
    FakeNvml(machine).install(monkeypatch)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    (_, second) = meetings([0, 1])
    second.ours.set("GPUs of rank 0", other)
    placed = []

    def measure(request, start):
        placed.append(start.local_rank)

    monkeypatch.setattr(launch, "measure_in_group", measure)
    run_as_rank(LaunchRequest(case=make_case(tier=tier), round=0), second)

    assert placed == [expected]


def test_the_second_rank_on_the_only_gpu_is_refused_before_it_measures(monkeypatch):
    machine = make_gpu_machine("Tesla T4")
    FakeNvml(machine).install(monkeypatch)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    (_, second) = meetings([0, 1])
    second.ours.set("GPUs of rank 0", f'["{machine.gpus[0].uuid}"]')

    with pytest.raises(LaunchError, match="ranks 0 and 1 see one GPU, and the same one"):
        run_as_rank(LaunchRequest(case=make_case(tier="gpu"), round=0), second)
