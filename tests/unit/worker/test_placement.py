"""The cores of a rank, and its own GPU."""

from __future__ import annotations

import itertools
import os

import pytest
import torch

from ddp_perf.errors import LaunchError
from ddp_perf.worker import process_group
from ddp_perf.worker.process_group import check_devices, cores_beside, cores_of_rank
from tests.builders import make_case, make_gpu_machine
from tests.recordings import RECORDED, FakeNvml, RecordedReader


@pytest.mark.parametrize(
    ("cores", "threads", "ranks"),
    [
        pytest.param((0, 1), 1, [(0,), (1,)], id="one each"),
        pytest.param((2, 5, 7, 9), 2, [(2, 5), (7, 9)], id="neighbours"),
        pytest.param((0, 1), 1, [(0,), (1,), (0,)], id="shared in turn"),
        pytest.param((0, 1, 2), 2, [(0, 1), (0, 2)], id="shared at the end"),
        pytest.param((4,), 3, [(4,), (4,)], id="more threads than cores"),
    ],
)
def test_ranks_get_neighbouring_cores(cores, threads, ranks):
    assert [cores_of_rank(cores, rank, threads) for rank in range(len(ranks))] == ranks


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_ranks_share_no_core_if_there_are_enough(threads):
    cores = tuple(range(10, 18))

    ranks = [cores_of_rank(cores, rank, threads) for rank in range(len(cores) // threads)]

    assert sorted(itertools.chain(*ranks)) == list(cores)


@pytest.mark.parametrize(
    ("env", "threads"), [({}, 1), ({"OMP_NUM_THREADS": "4"}, 4), ({"NCCL_DEBUG": "INFO"}, 1)]
)
def test_a_rank_has_one_thread_unless_its_case_sets_more(env, threads):
    assert make_case(env=env).threads_per_rank == threads


@pytest.mark.parametrize("name", RECORDED)
def test_every_rank_of_a_recorded_machine_runs_near_its_gpu(name):
    allowed = range(256)

    for gpu in RecordedReader.of(name).machine().gpus:
        assert cores_beside(gpu.cores, allowed) == gpu.cores


@pytest.mark.parametrize(
    ("near", "allowed", "cores"),
    [
        pytest.param((0, 1, 2, 3), (2, 3, 4), (2, 3), id="some are allowed"),
        pytest.param((0, 1), (6, 7), (6, 7), id="none is allowed: all allowed cores"),
        pytest.param((), (6, 7), (6, 7), id="unknown: all allowed cores"),
    ],
)
def test_a_rank_uses_allowed_cores_only(near, allowed, cores):
    assert cores_beside(near, allowed) == cores


@pytest.mark.parametrize(
    ("rank", "count", "mask", "message"),
    [
        (1, 1, "0", "rank 1 needs cuda:1, but torch sees 1 GPU under CUDA_VISIBLE_DEVICES=0;"),
        (0, 0, None, "rank 0 needs cuda:0, but torch sees 0 GPUs; make one GPU visible for each"),
        (8, 2, "", "but torch sees 2 GPUs under CUDA_VISIBLE_DEVICES=;"),
    ],
)
def test_a_rank_without_its_own_gpu_is_an_error_with_a_remedy(rank, count, mask, message):
    with pytest.raises(LaunchError, match="start fewer ranks") as caught:
        check_devices(rank, count, mask)

    assert message in str(caught.value)


def test_one_gpu_for_each_rank_is_accepted():
    check_devices(1, 2, None)


@pytest.fixture
def one_gpu(monkeypatch):
    """A machine with one GPU. The rank's settings are noted and not applied."""
    noted = {}
    FakeNvml(make_gpu_machine("NVIDIA H200", cores=(4, 5))).install(monkeypatch)
    for owner, name, stand_in in (
        (torch.cuda, "device_count", lambda: 1),
        (torch.cuda, "set_device", lambda device: None),
        (torch.cuda, "get_device_name", lambda rank: "NVIDIA H200"),
        (process_group, "device_uuid", lambda rank: "0abc-0000"),
        (os, "sched_setaffinity", lambda pid, cores: noted.update(cores=tuple(cores))),
        (process_group, "allowed_cores", lambda: tuple(range(8))),
        (torch, "set_num_threads", lambda count: noted.update(threads=count)),
    ):
        monkeypatch.setattr(owner, name, stand_in)
    return noted


@pytest.mark.parametrize(("env", "threads"), [({}, 1), ({"OMP_NUM_THREADS": "4"}, 4)])
def test_a_rank_on_a_gpu_has_the_threads_of_its_case(one_gpu, env, threads):
    """torch's default is one thread for each core of the machine, in each of eight ranks."""
    placed = process_group.place(make_case(tier="gpu", env=env), 0, local_rank=0)[1]

    assert one_gpu == {"threads": threads, "cores": (4, 5)}
    assert placed.device_id == "GPU-0abc-0000"


def test_a_second_rank_on_one_gpu_is_an_error(one_gpu):
    with pytest.raises(LaunchError, match="rank 1 needs cuda:1"):
        process_group.place(make_case(tier="gpu"), 1, local_rank=1)


def test_ranks_that_share_a_gpu_are_all_on_the_first(one_gpu):
    case = make_case(tier="gpu")
    placed = [process_group.place(case, rank, local_rank=rank, shared_gpu=True) for rank in (0, 1)]

    assert [str(device) for device, _ in placed] == ["cuda:0", "cuda:0"]
    assert [(p.rank, p.device_id) for _, p in placed] == [
        (0, "GPU-0abc-0000"),
        (1, "GPU-0abc-0000"),
    ]
