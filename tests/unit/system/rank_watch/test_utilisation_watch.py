"""What a rank used between two readings of its counters."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from ddp_perf.core.launch import GpuTraffic, GpuUse, RdmaUse
from ddp_perf.system import rank_watch
from ddp_perf.system.host.network import InterfaceBytes, PortCounters
from ddp_perf.system.rank_watch import (
    UseReading,
    UtilisationWatch,
    children_between,
    traffic_between,
)

USE_A_CORE = "import time\nwhile time.process_time() < 0.4: pass\nprint(flush=True)\ninput()"


def reading(at_s, **changes):
    fields = {"at_us": round(at_s * 1e6), "user_s": 0.0, "system_s": 0.0, "children_s": 0.0}
    return UseReading(at_s=at_s, **{**fields, **changes})


def test_a_rank_on_a_cpu_has_its_cpu_time_and_no_gpu():
    watch = UtilisationWatch(gpu=None, interface=None)
    watch.begin()
    end = time.process_time() + 0.1
    while time.process_time() < end:
        pass

    used = watch.used()

    assert 0.09 <= used.cpu_s <= used.period_s * 1.1
    assert 0 <= used.system_s <= used.cpu_s + 1e-9  # each is a difference of two readings
    assert (used.gpu, used.network) == (None, None)


@pytest.mark.parametrize("ends", [False, True], ids=["still runs", "has ended"])
def test_the_cpu_time_of_children_counts_whether_they_run_or_ended(ends):
    watch = UtilisationWatch(gpu=None, interface=None)
    watch.begin()
    with subprocess.Popen(
        [sys.executable, "-c", USE_A_CORE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        child.stdout.readline()
        if ends:
            child.communicate("\n")

        used = watch.used()
        if not ends:
            child.communicate("\n")

    assert used.loaders_cpu_s == pytest.approx(0.4, abs=0.2)
    assert used.cpu_s < 0.3  # not the child's


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
    found = children_between(reading(10, children_s=before), reading(11, children_s=after))

    assert found == expected


@pytest.mark.parametrize(("after", "expected"), [(0.05, None), (0.0, 0.0)])
def test_a_few_ticks_are_no_figure_but_no_child_is(after, expected):
    assert children_between(reading(10), reading(10.1, children_s=after)) == expected


def test_a_counter_that_began_again_is_unknown():
    before = GpuTraffic(pcie_sent=10, nvlink_sent=5, nvlink_received=7)
    after = GpuTraffic(pcie_sent=12, pcie_received=9, nvlink_sent=4, nvlink_received=7)

    assert traffic_between(before, after) == GpuTraffic(pcie_sent=2, nvlink_received=0)


def test_a_gpu_is_read_for_the_period_and_its_counters_twice():
    periods, traffic = [], iter([GpuTraffic(nvlink_sent=100), GpuTraffic(nvlink_sent=350)])

    def gpu_use(uuid, since_us, until_us):
        periods.append((uuid, since_us, until_us))
        return GpuUse(busy=0.9)

    watch = UtilisationWatch(
        gpu="GPU-0", interface=None, gpu_traffic=lambda uuid: next(traffic), gpu_use=gpu_use
    )
    earliest = time.time_ns() // 1000
    watch.begin()

    used = watch.used()

    assert used.gpu == GpuUse(busy=0.9, traffic=GpuTraffic(nvlink_sent=250))
    ((uuid, since_us, until_us),) = periods
    assert uuid == "GPU-0"
    assert earliest <= since_us <= until_us <= time.time_ns() // 1000


@pytest.mark.parametrize(
    ("after", "missing"),
    [
        pytest.param(InterfaceBytes(110, 320), False, id="counted on"),
        pytest.param(None, True, id="gone"),
        pytest.param(InterfaceBytes(5, 320), True, id="began again"),
    ],
)
def test_the_bytes_of_the_interface_are_a_difference(after, missing, monkeypatch):
    counters = iter([InterfaceBytes(10, 20), after])
    monkeypatch.setattr(rank_watch, "read_interface", lambda name: next(counters))
    monkeypatch.setattr(rank_watch, "link_speed", lambda name: 1.25e9)
    watch = UtilisationWatch(gpu=None, interface="eth9")
    watch.begin()

    network = watch.used().network

    if missing:
        assert network is None
    else:
        assert (network.interface, network.sent, network.received) == ("eth9", 100, 300)
        assert network.speed == 1.25e9


NDR = {"ports": "2 x InfiniBand 400 Gb/sec (4X NDR)", "speed": 100e9}


@pytest.mark.parametrize(
    ("after", "used"),
    [
        pytest.param((110, 320, 9), RdmaUse(sent=100, received=300, waited=4, **NDR), id="both"),
        pytest.param((110, 320, None), RdmaUse(sent=100, received=300, **NDR), id="no ticks"),
        pytest.param((5, 320, 9), None, id="cleared"),
        pytest.param(None, None, id="gone"),
        pytest.param((110, 320, 9, ("mlx5_1/ports/1",)), None, id="another port came up"),
    ],
)
def test_the_bytes_of_ports_for_rdma_are_a_difference(after, used, monkeypatch):
    counters = iter([PortCounters(10, 20, 5), after and PortCounters(*after)])
    monkeypatch.setattr(rank_watch, "read_rdma_ports", lambda: next(counters))
    monkeypatch.setattr(rank_watch, "rdma_networks", lambda: NDR["ports"])
    monkeypatch.setattr(rank_watch, "rdma_speed", lambda: NDR["speed"])
    watch = UtilisationWatch(gpu=None, interface=None, reads_rdma=True)
    watch.begin()

    assert watch.used().rdma == used


def test_ports_for_rdma_are_read_only_where_asked(monkeypatch):
    monkeypatch.setattr(rank_watch, "read_rdma_ports", lambda: pytest.fail("read"))
    watch = UtilisationWatch(gpu=None, interface=None)
    watch.begin()

    assert watch.used().rdma is None
