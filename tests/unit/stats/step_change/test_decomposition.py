"""The decomposition of a step: worked examples, and properties that it always has."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given

from ddp_perf.core.decomposition import TERMS
from ddp_perf.stats.step_decomposition import decompose, typical
from tests.builders import make_case, make_launch, make_probe
from tests.strategies import synchronised_probes

CASE = make_case()


def launch_of(*probes):
    launch = make_launch(CASE)
    ranks = [
        msgspec.structs.replace(launch.ranks[0], probe=probe, placement=launch.ranks[0].placement)
        for probe in probes
    ]
    return msgspec.structs.replace(launch, ranks=tuple(ranks))


def terms_of(*probes):
    return {name: value * 1e3 for name, value in decompose(launch_of(*probes)).terms.items()}


def test_equal_ranks_wait_for_communication_only():
    assert terms_of(make_probe(), make_probe()) == pytest.approx(
        {
            "data": 0.1,
            "forward": 2,
            "backward": 4,
            "interference": 0,
            "optimizer": 1,
            "idle": 0,
            "imbalance": 0,
            "exposed": 3,
        }
    )


def test_a_straggler_is_imbalance_not_communication():
    """The other rank waits for the straggler; that wait is not communication."""
    waiting, late = make_probe(exposed=0.008), make_probe(forward=0.007)
    found = decompose(launch_of(waiting, late))
    assert found.terms["imbalance"] == pytest.approx(0.005)
    assert found.terms["exposed"] == pytest.approx(0.003)
    assert found.terms["forward"] == pytest.approx(0.002)
    assert (found.slowest_rank, found.slowest_share) == (1, 1.0)
    assert found.lag_s == pytest.approx(0.005)


def test_ranks_that_are_late_in_turn_do_not_hide_a_straggler():
    """Each rank is late by 4 ms in every other step, and one of them by 5 ms more in all steps.

    The work of the typical rank does not change, and the straggler's lag is those 5 ms.
    """

    def launch(lag):
        own = [(0.002, 0.006) * 4, (0.006 + lag, 0.002 + lag) * 4]
        latest = [max(pair) for pair in zip(*own, strict=True)]
        waits = [
            tuple(0.001 + last - rank for last, rank in zip(latest, ranks, strict=True))
            for ranks in own
        ]
        phases = [
            msgspec.structs.replace(make_probe().phases, forward=tuple(ranks), exposed=wait)
            for ranks, wait in zip(own, waits, strict=True)
        ]
        return decompose(
            launch_of(*(msgspec.structs.replace(make_probe(), phases=each) for each in phases))
        )

    before, after = launch(lag=0.0), launch(lag=0.005)
    assert after.terms["forward"] == pytest.approx(before.terms["forward"])
    assert after.terms["imbalance"] > before.terms["imbalance"]
    assert (before.lag_s, after.lag_s) == (pytest.approx(0), pytest.approx(0.005))
    assert after.slowest_rank == 1


def test_the_typical_rank_of_four_is_the_lower_of_the_middle_two():
    forwards = (0.002, 0.003, 0.004, 0.009)
    probes = [make_probe(forward=own, exposed=0.012 - own) for own in forwards]
    found = decompose(launch_of(*probes))
    assert found.terms["forward"] == pytest.approx(0.003)
    assert found.terms["imbalance"] == pytest.approx(0.006)


@pytest.mark.parametrize(
    ("forwards", "lagging"),
    [
        ((0.002, 0.002, 0.002, 0.002), ()),
        ((0.002, 0.009, 0.002, 0.003), (1,)),
        ((0.002, 0.009, 0.002, 0.008), (1, 3)),
        ((0.002,), ()),
    ],
)
def test_ranks_that_lag_half_as_far_as_the_slowest_lag_too(forwards, lagging):
    probes = [make_probe(forward=own, exposed=0.012 - own) for own in forwards]
    assert decompose(launch_of(*probes)).lagging_ranks == lagging


def test_backward_time_added_by_communication_is_interference():
    probe = make_probe(backward=0.006, unsynchronised_backward=(0.004,) * 8)
    terms = terms_of(probe, probe)
    assert terms["backward"] == pytest.approx(4)
    assert terms["interference"] == pytest.approx(2)


def test_communication_in_idle_time_of_the_backward_costs_nothing():
    """The backward computes for 4 ms and idles for 2, in which another thread uses the core."""
    probe = make_probe(
        backward=0.006,
        unsynchronised_backward=(0.004,) * 8,
        unsynchronised_idle=(0.002,) * 8,
        backward_cpu=(0.006,) * 8,
    )
    terms = terms_of(probe, probe)
    assert terms["backward"] == pytest.approx(4)
    assert terms["idle"] == pytest.approx(2)
    assert terms["interference"] == pytest.approx(0)


def test_time_that_no_thread_of_the_rank_used_is_idle_not_interference():
    """The rank computed for 4 of 9 ms and communicated for 2; a neighbour had the core for 3."""
    probe = make_probe(
        backward=0.009,
        unsynchronised_backward=(0.004,) * 8,
        unsynchronised_idle=(0.0,) * 8,
        backward_cpu=(0.006,) * 8,
    )
    terms = terms_of(probe, probe)
    assert terms["idle"] == pytest.approx(3)
    assert terms["interference"] == pytest.approx(2)


def test_the_backward_is_not_split_without_an_unsynchronised_run():
    """FSDP has no unsynchronised run, and one rank needs none."""
    probe = make_probe(backward=0.006, unsynchronised_backward=())
    assert terms_of(probe, probe)["backward"] == pytest.approx(6)
    assert terms_of(make_probe(exposed=0.0))["interference"] == 0


def test_a_collective_that_the_code_waits_for_is_exposed_communication():
    probe = make_probe(waiting=0.002)
    assert terms_of(probe, probe)["exposed"] == pytest.approx(5)


def test_a_single_stall_changes_no_term():
    probe = make_probe()
    stalled = (0.5, *probe.phases.forward[1:])
    phases = msgspec.structs.replace(probe.phases, forward=stalled)
    probe = msgspec.structs.replace(probe, phases=phases)
    assert terms_of(probe, probe)["forward"] == pytest.approx(2)


def test_communication_time_is_that_of_the_rank_that_leaves_last():
    probes = make_probe(communication=(0.004,) * 8), make_probe(communication=(0.006,) * 8)
    found = decompose(launch_of(*probes))
    assert found.communication_s == pytest.approx(0.006)
    assert found.hidden_share == pytest.approx(1 - 3 / 6)


@pytest.mark.parametrize("probes", [(make_probe(), make_probe(communication=())), (make_probe(),)])
def test_communication_time_is_none_if_a_rank_lacks_it_or_is_single(probes):
    found = decompose(launch_of(*probes))
    assert found.communication_s is None
    assert found.hidden_share is None


@pytest.mark.parametrize(
    "probes",
    [
        (make_probe(), None),
        (None, None),
        (make_probe(steps=0), make_probe(steps=0)),
        (make_probe(steps=8), make_probe(steps=7)),
    ],
    ids=["one rank without", "no rank with one", "no steps", "other steps"],
)
def test_decompose_is_none_if_ranks_probed_different_steps(probes):
    assert decompose(launch_of(*probes)) is None


@given(synchronised_probes())
def test_the_terms_add_up_to_the_step(probes):
    """The sum is exact for any ranks that leave each step together."""
    found = decompose(launch_of(*probes))
    assert set(found.terms) == set(TERMS)
    assert found.explained_s == pytest.approx(found.step_s)
    assert found.terms["imbalance"] >= -1e-12
    assert found.terms["exposed"] >= -1e-12


def test_typical_decomposition_has_the_medians_over_launches():
    probes = [
        (make_probe(forward=own), make_probe(exposed=0.001 + own)) for own in (0.003, 0.004, 0.009)
    ]
    found = typical([decompose(launch_of(*pair)) for pair in probes])
    assert found.terms["imbalance"] == pytest.approx(0.002)
    assert [share.own_s for share in found.ranks] == pytest.approx([0.0091, 0.0071])
    assert [share.waits_s for share in found.ranks] == pytest.approx([0.003, 0.005])
    assert (found.slowest_rank, found.slowest_share) == (0, 1.0)
    assert typical([]) is None
