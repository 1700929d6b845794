"""Which cores a rank of the CPU tier gets."""

from __future__ import annotations

import itertools

import pytest

from ddp_perf.worker.placement import cores_of_rank
from tests.builders import make_case


@pytest.mark.parametrize(
    ("cores", "threads", "ranks"),
    [
        pytest.param((0, 1), 1, [(0,), (1,)], id="one each"),
        pytest.param((2, 5, 7, 9), 2, [(2, 5), (7, 9)], id="neighbours"),
        pytest.param((0, 1), 1, [(0,), (1,), (0,)], id="shared round and round"),
        pytest.param((0, 1, 2), 2, [(0, 1), (0, 2)], id="shared at the end"),
        pytest.param((4,), 3, [(4,), (4,)], id="more threads than cores"),
    ],
)
def test_ranks_get_neighbouring_cores(cores, threads, ranks):
    assert [cores_of_rank(cores, rank, threads) for rank in range(len(ranks))] == ranks


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_no_core_is_shared_where_there_are_enough(threads):
    cores = tuple(range(10, 18))

    ranks = [cores_of_rank(cores, rank, threads) for rank in range(len(cores) // threads)]

    assert sorted(itertools.chain(*ranks)) == list(cores)


@pytest.mark.parametrize(
    ("env", "threads"), [({}, 1), ({"OMP_NUM_THREADS": "4"}, 4), ({"NCCL_DEBUG": "INFO"}, 1)]
)
def test_a_rank_has_one_thread_unless_its_case_says_otherwise(env, threads):
    assert make_case(env=env).threads_per_rank == threads
