"""The probe of real launches: additional work in a step is found in its term, and only there."""

from __future__ import annotations

import msgspec
import pytest

from ddp_perf.core.launch import LaunchResult
from ddp_perf.core.strategy import Fp16Hook, HierarchicalHook
from ddp_perf.stats.step_decomposition import decompose

WAIT_S = 0.02


@pytest.fixture
def probed(launcher, request_of):
    """Return the launch, and the decomposition of its step."""

    def look(more, **changes):
        outcome = launcher.launch(request_of("probed:build", {"more": more}, **changes))
        assert isinstance(outcome, LaunchResult), outcome
        return outcome, decompose(outcome)

    return look


@pytest.mark.parametrize(
    ("more", "term"), [("late batch", "data"), ("slow optimizer", "optimizer")]
)
def test_the_probe_finds_the_time_of_each_term(probed, more, term):
    """Other processes may add to any term that waits, but take from none."""
    _, found = probed(more)
    assert found.terms[term] >= 0.9 * WAIT_S
    assert all(found.terms[other] < WAIT_S / 2 for other in {"data", "optimizer"} - {term})


def test_the_probe_names_the_straggler(probed):
    """Its own work has all of the wait; the imbalance has less if neighbours hold up both ranks."""
    _, found = probed("late rank")
    assert found.lagging_ranks == (found.slowest_rank,) == (1,)
    assert found.ranks[1].own_s >= WAIT_S
    assert found.terms["imbalance"] + found.ranks[0].own_s >= WAIT_S
    assert min(found.terms["imbalance"], found.lag_s) > WAIT_S / 2
    assert max(found.terms["data"], found.terms["optimizer"]) < WAIT_S / 2
    # The other rank may arrive last in a step or two.
    assert found.slowest_share > 0.5


def test_the_probe_counts_the_wait_for_a_collective_of_the_training_code(probed):
    outcome, found = probed("collective")
    probe = outcome.ranks[0].probe
    assert min(probe.phases.waiting) > 0
    assert found.communication_s > 0
    assert found.terms["exposed"] > 0


def test_the_probe_counts_the_values_that_the_host_reads(probed):
    assert probed("nothing")[1].host_reads == 0
    assert probed("read")[1].host_reads == 1


def test_every_run_of_the_probe_has_the_requested_steps(launcher, request_of):
    request = request_of("probed:build", {"more": "nothing"})
    outcome = launcher.launch(msgspec.structs.replace(request, probe_steps=3))
    for rank in outcome.ranks:
        runs = (*msgspec.structs.astuple(rank.probe.phases), rank.probe.unsynchronised_backward)
        assert {len(run) for run in (*runs, rank.probe.communication)} == {3}


def test_the_probe_does_not_change_the_measured_steps(probed):
    """The digest is taken before the probe, in which the parameters of ranks diverge."""
    outcome, _ = probed("nothing")
    assert outcome.ranks[0].digest == outcome.ranks[1].digest


@pytest.mark.parametrize(
    "changes",
    [
        {"strategy": "fsdp"},
        {"gradient_accumulation": 3},
        {"comm_hooks": (Fp16Hook(),)},
        {"precision": "bf16"},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_the_probe_works_with_other_strategies(probed, changes):
    outcome, found = probed("nothing", **changes)
    assert found.communication_s > 0
    assert found.terms["exposed"] > 0
    is_ddp = "strategy" not in changes
    assert bool(outcome.ranks[0].probe.unsynchronised_backward) == is_ddp


def test_the_probe_does_not_repeat_collectives_of_groups(probed):
    _, found = probed("nothing", comm_hooks=(HierarchicalHook(group_size=2),))
    assert found.communication_s is None


def test_the_probe_of_one_rank_has_no_communication(probed):
    _, found = probed("nothing", world_sizes=[1])
    assert found.communication_s is None
    assert found.terms["exposed"] == found.terms["interference"] == found.terms["imbalance"] == 0
