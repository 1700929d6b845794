"""Each injection has its own effect on real ranks, which is exact if possible, else large."""

from __future__ import annotations

import json
import os
import select
import statistics
from collections import Counter

import msgspec
import pytest

from ddp_perf.core.injection import parse_injection
from ddp_perf.core.launch import Collective, LaunchFailure, LaunchResult
from ddp_perf.stats.level import launch_level
from ddp_perf.system.host.processes import state_of

SETTLED = 3  # first steps, in which DDP rebuilds its buckets
MANY_BUCKETS = {"ddp": {"bucket_cap_mb": 0.001}}


class Ranks:
    """The results of the ranks of one launch, and the notes of the workload in the timed steps."""

    def __init__(self, result, notes):
        self.result = result
        self.structure = result.ranks[0].structure
        self.collectives = Counter(self.structure.collectives)
        self.peak_memory = min(rank.peak_memory for rank in result.ranks)
        self._notes = notes

    def typical(self, name, rank):
        return statistics.median(getattr(self.result.ranks[rank], name))

    def level(self, name, rank):
        return launch_level(getattr(self.result.ranks[rank], name))

    def noted(self, name, rank):
        steps = len(self.result.ranks[rank].warmup_s) + len(self.result.ranks[rank].step_s)
        return [step[name] for step in self._notes[rank][:steps][SETTLED:]]


@pytest.fixture
def watch(launcher, request_of, tmp_path):
    """``watch("data:5ms", …)``: the outcome of a launch of the watched workload, and its notes."""

    def launch(*texts, model, **changes):
        request = request_of(
            "watched:build", {"notes": str(tmp_path / "notes"), **model}, **changes
        )
        injections = tuple(map(parse_injection, texts))
        outcome = launcher.launch(msgspec.structs.replace(request, injections=injections))
        files = [tmp_path / f"notes.{rank}" for rank in range(request.case.world_size)]
        return outcome, [
            [json.loads(row) for row in file.read_text().splitlines()] for file in files
        ]

    return launch


@pytest.fixture
def ranks(watch):
    """``ranks("data:5ms", …)``: a successful launch of the watched workload."""

    def launch(*texts, width=32, **changes):
        result, notes = watch(*texts, model={"width": width}, **changes)
        assert isinstance(result, LaunchResult), str(result)
        return Ranks(result, notes)

    return launch


def ends(pid, within_s):
    """Return whether a process that is no child of this one ends in time, or has ended."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([descriptor], [], [], within_s)[0])
    finally:
        os.close(descriptor)


def all_reduce(size):
    return Collective(kind="all_reduce", dtype="float32", bytes=size)


def test_injected_compute_costs_cpu_time_in_proportion_to_the_step(ranks):
    size = {"width": 256, "batch_sizes": [64]}
    before, after = ranks(**size), ranks("compute:100%", **size)

    for rank in (0, 1):
        assert after.level("cpu_s", rank) > 1.4 * before.level("cpu_s", rank)
    assert after.collectives == before.collectives
    assert [rank.slowdown for rank in before.result.ranks] == [None, None]
    assert all(rank.slowdown > 0 for rank in after.result.ranks)  # as the ranks measured it


def test_an_injected_straggler_is_late_for_its_backward_and_all_ranks_wait(ranks):
    after = ranks("straggler:1:50ms")

    assert min(after.noted("late_s", 1)) >= 0.05
    assert statistics.median(after.noted("late_s", 0)) < 0.025
    for rank in (0, 1):
        assert after.typical("step_s", rank) > 0.045


def test_injected_data_delay_every_forward_and_cost_no_cpu_time(ranks):
    after = ranks("data:50ms")

    for rank in (0, 1):
        assert min(after.result.ranks[rank].step_s) >= 0.05
        assert after.typical("cpu_s", rank) < 0.025
        assert statistics.median(after.noted("late_s", rank)) < 0.025


def test_an_injected_all_reduce_is_one_more_collective_of_those_bytes(ranks):
    before, after = ranks(), ranks("extra-allreduce:4096")

    assert after.collectives - before.collectives == Counter([all_reduce(4096)])
    assert before.collectives - after.collectives == Counter()
    assert after.structure.buckets == before.structure.buckets
    assert after.result.ranks[0].digest == before.result.ranks[0].digest


def test_an_injected_all_reduce_runs_once_per_step_with_any_micro_steps(ranks):
    before = ranks(gradient_accumulation=3)
    after = ranks("extra-allreduce:4096", "sync-each-step", gradient_accumulation=3)

    assert after.collectives - before.collectives == Counter([all_reduce(4), all_reduce(4096)])


def test_injected_small_buckets_carry_the_same_bytes_in_more_parts(ranks):
    before, after = ranks(), ranks("small-buckets:1KB")

    layer = 4 * (32 * 32 + 32)
    assert before.structure.buckets == (4 * layer,)
    assert after.structure.buckets == (layer,) * 4
    assert after.collectives == Counter({all_reduce(layer): 4})


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"static_graph": True, "gradient_as_bucket_view": True, "broadcast_buffers": False},
        {"find_unused_parameters": True},
    ],
    ids=["plain", "static graph", "unused parameters"],
)
def test_injected_no_overlap_reduces_nothing_before_the_last_gradient(ranks, options):
    ddp = {**MANY_BUCKETS["ddp"], **options}
    before, after = ranks(ddp=ddp), ranks("no-overlap", ddp=ddp)

    for rank in (0, 1):
        assert min(before.noted("issued", rank)) > 0
        assert set(after.noted("issued", rank)) == {0}
    # The same work in every other respect, to the last bit.
    assert after.structure == before.structure
    assert after.result.ranks[0].digest == before.result.ranks[0].digest


def test_injected_no_overlap_keeps_the_parameters_of_three_ranks_equal(ranks):
    """With three ranks: a third has no exact float, so another way of scaling would be visible."""
    case = {"world_sizes": [3], **MANY_BUCKETS}

    digests = [ranks(*texts, **case).result.ranks[0].digest for texts in [(), ("no-overlap",)]]

    assert digests[0] == digests[1]


def test_injected_sync_each_step_reads_the_mean_loss(ranks):
    before, after = ranks(), ranks("sync-each-step")

    assert after.collectives - before.collectives == Counter([all_reduce(4)])
    assert after.result.ranks[0].digest == before.result.ranks[0].digest


def test_injected_memory_is_used_by_every_rank(ranks):
    before, after = ranks(), ranks("memory:64MB")

    assert after.peak_memory - before.peak_memory >= 60 << 20


@pytest.mark.slow
def test_an_injected_hog_takes_its_share_of_the_core_and_ends_with_the_steps(ranks):
    size = {"width": 512, "batch_sizes": [128], "world_sizes": [1], "steps": 100}
    after = ranks("cpu-hog:3", **size)

    started = set(map(tuple, after.noted("children", 0)))
    assert [len(pids) for pids in started] == [3]  # the same three in every timed step
    assert sum(after.result.ranks[0].step_s) > 2 * sum(after.result.ranks[0].cpu_s)
    assert after.result.ranks[0].conditions.foreign > 0.2  # though it is the rank's own child
    assert not any(map(state_of, *started))


def test_injected_hogs_are_distributed_over_the_ranks(ranks):
    after = ranks("cpu-hog:3")

    assert [len(after.noted("children", rank)[0]) for rank in (0, 1)] == [2, 1]


def test_an_injected_hog_ends_with_a_rank_that_is_killed(watch):
    failure, notes = watch("cpu-hog:2", model={"killed_at": 6})

    assert isinstance(failure, LaunchFailure)
    hogs = [pid for rank in notes for pid in rank[-1]["children"]]
    assert len(hogs) == 2
    assert all(ends(pid, within_s=60) for pid in hogs)


def test_several_injections_have_all_their_effects(ranks):
    before = ranks()
    after = ranks("sync-each-step", "extra-allreduce:4096", "memory:64MB", "no-overlap")

    assert after.collectives - before.collectives == Counter([all_reduce(4), all_reduce(4096)])
    assert after.peak_memory - before.peak_memory >= 60 << 20
