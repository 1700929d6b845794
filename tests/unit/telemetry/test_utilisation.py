"""What a rank used between two samples, and the energy of its GPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddp_perf.core.launch import GpuTraffic, GpuUse, NetworkUse, RdmaUse
from ddp_perf.system.gpu.nvml_activity import GpuCounters
from ddp_perf.system.host.network import RdmaCounters
from ddp_perf.telemetry.sample import Sample
from ddp_perf.telemetry.utilisation import energy_j, utilisation


def sample(at_s, **changes):
    return Sample(
        at_s=at_s, used_at_s=at_s, **{"cpu_s": 0.0, "system_s": 0.0, "children_s": 0.0, **changes}
    )


def used(before, after, *, seconds=1.0):
    """Return the use between two samples with these changes."""
    return utilisation(sample(10.0, **before), sample(10.0 + seconds, **after))


def test_the_cpu_time_is_a_difference_and_a_rank_on_a_cpu_has_no_gpu():
    found = used({"cpu_s": 5.0, "system_s": 1.0}, {"cpu_s": 5.75, "system_s": 1.25}, seconds=2.0)

    assert (found.period_s, found.cpu_s, found.system_s) == (2.0, 0.75, 0.25)
    assert (found.gpu, found.network, found.rdma) == (None, None, None)


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        pytest.param(1.0, 1.5, 0.5, id="used"),
        pytest.param(1.0, 1.0, 0.0, id="nothing used"),
        pytest.param(1.0, 0.995, 0.0, id="an ended child is counted more exactly"),
        pytest.param(None, 1.0, None, id="the kernel lists no children"),
    ],
)
def test_the_cpu_time_of_children_is_a_difference(before, after, expected):
    assert used({"children_s": before}, {"children_s": after}).loaders_cpu_s == expected


@pytest.mark.parametrize(("after", "expected"), [(0.05, None), (0.0, 0.0)])
def test_a_few_ticks_are_no_figure_but_no_child_is(after, expected):
    assert used({}, {"children_s": after}, seconds=0.1).loaders_cpu_s == expected


def test_the_use_of_a_gpu_has_the_traffic_and_a_counter_that_began_again_is_unknown():
    before = GpuTraffic(pcie_sent=10, nvlink_sent=5, nvlink_received=7)
    after = GpuTraffic(pcie_sent=12, pcie_received=9, nvlink_sent=4, nvlink_received=7)

    found = used(
        {"gpu": GpuCounters(traffic=before)},
        {"gpu": GpuCounters(traffic=after), "gpu_use": GpuUse(busy=0.9)},
    )

    assert found.gpu == GpuUse(busy=0.9, traffic=GpuTraffic(pcie_sent=2, nvlink_received=0))


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        pytest.param((110, 320), (100, 300), id="counted on"),
        pytest.param(None, None, id="gone"),
        pytest.param((5, 320), None, id="began again"),
    ],
)
def test_the_bytes_of_the_interface_are_a_difference(after, expected):
    def eth9(counters):
        if counters is None:
            return None
        return NetworkUse(interface="eth9", sent=counters[0], received=counters[1], speed=1.25e9)

    found = used({"network": eth9((10, 20))}, {"network": eth9(after)})

    assert found.network == eth9(expected)


PORTS = (Path("mlx5_0/ports/1"),)


def rdma(sent, received, waited, ports=PORTS):
    use = RdmaUse(ports="1 x NDR", sent=sent, received=received, waited=waited, speed=50e9)
    return RdmaCounters(ports, use)


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        pytest.param(rdma(110, 320, 9), rdma(100, 300, 4), id="both"),
        pytest.param(rdma(110, 320, None), rdma(100, 300, None), id="no ticks"),
        pytest.param(rdma(110, 320, 4), rdma(100, 300, None), id="ticks that began again"),
        pytest.param(rdma(5, 320, 9), None, id="cleared"),
        pytest.param(None, None, id="gone"),
        pytest.param(rdma(110, 320, 9, (Path("x"),)), None, id="another port came up"),
    ],
)
def test_the_bytes_of_ports_for_rdma_are_a_difference(after, expected):
    assert used({"rdma": rdma(10, 20, 5)}, {"rdma": after}).rdma == (expected and expected.use)


def energy(*, seconds=10.0, **counter):
    """Return the energy between two samples, with the counter at 100 J and 700 J."""
    counters = {"before": 100.0, "after": 700.0, **counter}
    return energy_j(
        sample(10.0, gpu=GpuCounters(energy_j=counters["before"])),
        sample(10.0 + seconds, gpu=GpuCounters(energy_j=counters["after"])),
    )


def test_energy_is_the_increase_of_the_counter():
    assert energy() == 600.0
    assert energy(seconds=2.5) == 600.0


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"before": None, "after": None}, id="no counter"),
        pytest.param({"after": None}, id="the GPU fell off"),
        pytest.param({"after": 50.0}, id="counts anew"),
        pytest.param({"after": 100.0}, id="stood still"),
        pytest.param({"seconds": 2.4}, id="too short for its steps"),
    ],
)
def test_energy_that_is_not_counted_is_none_and_never_0(change):
    assert energy(**change) is None


def test_the_cpu_tier_has_no_energy():
    assert energy_j(sample(10.0), sample(20.0)) is None
