"""Rates and shares of a case's utilisation, from the readings of its ranks."""

from __future__ import annotations

import msgspec
import pytest

from ddp_perf.core.launch import GpuTraffic, NetworkUse, RdmaUse
from ddp_perf.stats.summary import CaseUtilisation, utilisation_figures
from tests.builders import make_case, make_launch, make_placement, make_utilisation


def launch_of(*each):
    """Return a launch of ranks with these utilisations, each on a core of its own."""
    launch = make_launch(make_case(world_size=len(each)))
    ranks = [
        msgspec.structs.replace(
            rank, utilisation=used, placement=make_placement(number, cores=(number,))
        )
        for number, (rank, used) in enumerate(zip(launch.ranks, each, strict=True))
    ]
    return msgspec.structs.replace(launch, ranks=tuple(ranks))


def figures(*each):
    return utilisation_figures([launch_of(*each)])


def test_cores_are_cpu_time_in_a_second_of_a_rank():
    found = figures(
        make_utilisation(cpu_s=1.0, system_s=0.2, loaders_cpu_s=0.4),
        make_utilisation(cpu_s=2.0, system_s=0.4, loaders_cpu_s=0.0),
    )

    assert found == CaseUtilisation(
        cpu_cores=pytest.approx(0.75),
        system_cores=pytest.approx(0.15),
        loader_cores=pytest.approx(0.1),
        cores_share=pytest.approx((0.5 + 1.0 + 0.2) / 2),
    )


def test_the_share_of_cores_counts_a_shared_core_once():
    launch = launch_of(make_utilisation(), make_utilisation())
    ranks = [msgspec.structs.replace(r, placement=make_placement(0)) for r in launch.ranks]

    found = utilisation_figures([msgspec.structs.replace(launch, ranks=tuple(ranks))])

    assert found.cores_share == 1.0


def test_a_reading_that_one_rank_lacks_is_unknown():
    found = figures(make_utilisation(loaders_cpu_s=None), make_utilisation(loaders_cpu_s=0.4))

    assert (found.loader_cores, found.cores_share) == (None, None)
    assert found.cpu_cores == 0.5


def test_an_older_file_has_no_utilisation():
    assert figures(None, None) == figures(make_utilisation(), None) == CaseUtilisation()
    assert CaseUtilisation().known() == {}


@pytest.mark.parametrize(("speed", "share"), [(None, None), (1e9, 0.15)])
def test_the_network_is_that_of_rank_0_in_its_busier_direction(speed, share):
    network = NetworkUse(interface="eth9", sent=10**8, received=3 * 10**8, speed=speed)

    found = figures(make_utilisation(network=network), make_utilisation())

    assert (found.interface, found.network_bytes_per_s) == ("eth9", 1.5e8)
    assert found.network_share == share


@pytest.mark.parametrize(("waited", "waits"), [(None, None), (10**6, 5e5)])
def test_ports_for_rdma_are_those_of_rank_0_beside_the_network(waited, waits):
    rdma = RdmaUse(
        ports="1 x InfiniBand", sent=4 * 10**9, received=10**9, waited=waited, speed=25e9
    )

    found = figures(make_utilisation(rdma=rdma), make_utilisation())

    assert (found.rdma_ports, found.rdma_bytes_per_s) == ("1 x InfiniBand", 2e9)
    assert (found.rdma_share, found.rdma_waits_per_s) == (0.08, waits)
    assert found.network_bytes_per_s is None


def test_gpus_are_a_mean_but_for_the_memory_of_the_fullest():
    def gpu(scale):
        traffic = GpuTraffic(
            nvlink_sent=scale * 10**9,
            nvlink_received=scale * 2 * 10**9,
            pcie_sent=scale * 10**6,
            pcie_received=0,
        )
        fields = {"busy": 0.4 * scale, "memory_busy": 0.2, "sm_clock_mhz": 1000.0 * scale}
        return make_utilisation(gpu={**fields, "memory_used": scale * 2**30, "traffic": traffic})

    found = figures(gpu(1), gpu(2))

    assert found.gpu_busy == pytest.approx(0.6)
    assert (found.gpu_memory_busy, found.sm_clock_mhz) == (pytest.approx(0.2), 1500)
    assert found.gpu_memory_used == 2 * 2**30
    assert (found.pcie_bytes_per_s, found.nvlink_bytes_per_s) == (0.75e6, 1.5e9)


def test_traffic_in_one_direction_is_unknown_if_the_other_is():
    half = make_utilisation(gpu={"traffic": GpuTraffic(pcie_sent=10**6)})

    assert figures(half, half).pcie_bytes_per_s is None


def test_a_case_has_the_medians_over_its_launches_that_have_a_figure():
    each = [launch_of(make_utilisation(cpu_s=seconds)) for seconds in (1.0, 1.2, 9.0)]

    found = utilisation_figures([*each, launch_of(None)])

    assert found.cpu_cores == pytest.approx(0.6)
