"""The slowest rank is found in ranks whose delays are constructed."""

from __future__ import annotations

import pytest

from ddp_perf.traces.analysis import compare_ranks
from ddp_perf.traces.text import comparison_lines
from tests.unit.traces.kineto import all_reduce, kernel, step

US = 1e-6


def rank_of(timeline, starts, ends, **header):
    calls = zip(starts, ends, strict=True)
    events = [all_reduce(start, end - start) for start, end in calls]
    return timeline(kernel("gemm", 0, 1), *events, **header)


def test_rank_that_starts_last_is_slowest(timeline):
    found = compare_ranks(
        {
            0: rank_of(timeline, [10, 100, 200], [50, 140, 240]),
            3: rank_of(timeline, [40, 130, 195], [50, 140, 240]),
        }
    )

    assert (found.matched, found.unmatched, found.one_clock) == (3, 0, True)
    assert found.median_skew_s == pytest.approx(30 * US)
    assert found.largest_skew_s == pytest.approx(30 * US)
    assert found.slowest == 3
    fast, slow = found.ranks
    assert (slow.rank, slow.last, slow.collectives) == (3, 2, 3)
    assert slow.behind_s == pytest.approx(30 * US)
    assert (fast.last, fast.behind_s) == (1, 0)


def test_files_with_different_base_times_have_one_clock(timeline):
    early = rank_of(timeline, [10], [50], baseTimeNanoseconds=1_000_000)
    late = rank_of(timeline, [10], [30], baseTimeNanoseconds=1_020_000)

    found = compare_ranks({0: early, 1: late})

    assert found.one_clock
    assert found.median_skew_s == pytest.approx(20 * US)
    assert found.slowest == 1


def test_different_clocks_are_detected_and_lengths_are_compared(timeline):
    found = compare_ranks(
        {
            0: rank_of(timeline, [10, 100], [50, 140]),
            1: rank_of(timeline, [90_040, 90_130], [90_050, 90_140]),  # in for a short time
        }
    )

    assert not found.one_clock
    assert found.slowest == 1
    assert found.median_skew_s == pytest.approx(30 * US)


def test_clocks_of_two_hosts_are_not_compared_even_if_they_seem_to_agree(timeline):
    ranks = {
        0: rank_of(timeline, [10, 100], [50, 140]),
        1: rank_of(timeline, [5, 95], [15, 105]),  # 5 µs early by its clock, and in for 10 µs
    }

    found = compare_ranks(ranks, hosts={"a", "b"})

    assert compare_ranks(ranks).slowest == 0
    assert (found.one_clock, found.hosts, found.slowest) == (False, 2, 1)
    assert found.median_skew_s == pytest.approx(30 * US)
    assert "not by clocks: those of 2 hosts are never compared" in comparison_lines(found)[0]


def test_no_rank_is_slowest_if_ranks_take_turns(timeline):
    found = compare_ranks(
        {
            0: rank_of(timeline, [10, 105], [50, 140]),
            1: rank_of(timeline, [15, 100], [50, 140]),
        }
    )

    assert found.slowest is None


def test_calls_are_matched_within_the_common_steps(timeline):
    steps = [step(1, 0, 100), step(2, 100, 100), step(3, 200, 100)]
    found = compare_ranks(
        {
            0: timeline(*steps[:2], all_reduce(10, 40), all_reduce(110, 40)),
            1: timeline(*steps[1:], all_reduce(130, 20), all_reduce(210, 20)),
        }
    )

    assert found.matched == 1  # of step 2
    assert found.median_skew_s == pytest.approx(20 * US)


def test_calls_of_different_counts_are_unmatched(timeline):
    found = compare_ranks(
        {0: rank_of(timeline, [10, 60], [50, 90]), 1: rank_of(timeline, [10], [50])}
    )

    assert (found.matched, found.unmatched) == (0, 3)
    assert (found.median_skew_s, found.slowest) == (None, None)


def test_calls_of_different_groups_are_not_matched(timeline):
    groups = [{"Process Group Ranks": ranks} for ranks in ("[0, 1]", "[2, 3]")]
    found = compare_ranks(
        {rank: timeline(all_reduce(10, 5, **group)) for rank, group in enumerate(groups)}
    )

    assert found.matched == 0


def test_ranks_without_communication_have_no_skew(timeline):
    found = compare_ranks({0: timeline(kernel("gemm", 0, 1)), 1: timeline(kernel("gemm", 0, 1))})

    assert (found.matched, found.median_skew_s) == (0, None)
