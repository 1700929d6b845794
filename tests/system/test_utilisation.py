"""The utilisation of real launches over gloo: bytes of the interface, and CPU time of loaders."""

from __future__ import annotations

import pytest

from ddp_perf.core.launch import LaunchResult
from ddp_perf.stats.plausibility import least_bytes

SIZES = {"input_dim": 512, "hidden_dim": 512, "output_dim": 64, "num_layers": 2}


@pytest.fixture
def launched(launcher, request_of):
    def launch(**suite):
        request = request_of("mlp", SIZES, **{"batch_sizes": [16], "steps": 60, **suite})
        outcome = launcher.launch(request)
        assert isinstance(outcome, LaunchResult), str(outcome)
        return outcome.ranks

    return launch


def test_rank_0_counts_at_least_the_bytes_that_all_ranks_send(launched):
    """Other programs of the host may send over lo, too, so there is no upper bound."""
    first, second = launched()

    steps = len(first.warmup_s) + len(first.step_s)
    needed = 2 * steps * least_bytes(first.structure.collectives)
    assert needed > 50e6
    network = first.utilisation.network
    assert (network.interface, network.speed) == ("lo", None)
    assert network.sent >= needed
    assert network.received >= needed
    assert second.utilisation.network is None  # it would count the same bytes


def test_one_rank_has_no_network(launched):
    (only,) = launched(world_sizes=[1])

    assert only.utilisation.network is None


def test_the_cpu_time_of_a_rank_is_that_of_its_steps_and_little_more(launched):
    for rank in launched():
        used = rank.utilisation
        assert used.cpu_s >= sum(rank.cpu_s) > 0
        assert used.period_s >= sum(rank.step_s)
        assert 0 < used.system_s < used.cpu_s  # gloo's sockets
        assert used.gpu is None


@pytest.mark.parametrize(
    "workers", [0, *(pytest.param(one, marks=pytest.mark.slow) for one in (None, 1))]
)
def test_loader_workers_have_cpu_time_of_their_own(workers, launched):
    data = {} if workers is None else {"data": {"num_workers": workers}}
    for rank in launched(steps=300, **data):
        loaders_s = rank.utilisation.loaders_cpu_s
        assert loaders_s > 0.02 if workers else loaders_s == 0
