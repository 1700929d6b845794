"""The samples of a rank on this machine, and the order in which a GPU is read."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import msgspec
import pytest

from ddp_perf.core.launch import GpuTraffic, GpuUse
from ddp_perf.system.gpu.nvml_activity import GpuCounters
from ddp_perf.system.host import processes
from ddp_perf.telemetry import sample
from ddp_perf.telemetry.conditions import conditions
from ddp_perf.telemetry.sample import Sampler
from ddp_perf.telemetry.utilisation import utilisation

CORES = sorted(os.sched_getaffinity(0))
USE_A_CORE = "import time\nwhile time.process_time() < 0.4: pass\nprint(flush=True)\ninput()"


def test_the_samples_of_this_machine_give_shares_or_none():
    sampler = Sampler(CORES, pinned=True)
    first = sampler.read()

    found = conditions(first, sampler.read_after(first), pinned=True)

    for share in msgspec.structs.astuple(found):
        assert share is None or 0 <= share <= 1


def test_a_rank_that_may_run_anywhere_has_no_clock_or_heat_of_its_cores():
    found = Sampler(CORES, pinned=False).read()

    assert (found.clock_ratio, found.heat_events) == (None, None)


@pytest.mark.parametrize(
    ("stalls", "own"), [((1.0, 1.5), True), ((1.0, 1.0), False)], ids=["waited", "did not wait"]
)
def test_the_filled_memory_is_read_only_after_a_wait_for_memory(monkeypatch, stalls, own):
    """Reading it takes long."""
    readings, asked = iter(stalls), []

    def family_memory(parent):
        asked.append(parent)
        return 95

    monkeypatch.setattr(sample, "read_memory_stall_s", lambda: next(readings))
    monkeypatch.setattr(sample, "family_memory", family_memory)
    monkeypatch.setattr(sample, "memory_limit", lambda: 100)
    sampler = Sampler(CORES, pinned=True)
    first = sampler.read()

    last = sampler.read_after(first)

    assert asked == ([os.getppid()] if own else [])
    assert last.memory_filled == (0.95 if own else None)
    found = conditions(first, last, pinned=True)
    assert found.memory == 0
    assert (found.own_memory is not None) is own


def test_the_cpu_time_of_the_rank_is_that_of_its_process():
    sampler = Sampler(CORES, pinned=True)
    first = sampler.read()
    end = time.process_time() + 0.1
    while time.process_time() < end:
        pass

    used = utilisation(first, sampler.read_after(first))

    assert 0.09 <= used.cpu_s <= used.period_s * 1.1
    assert 0 <= used.system_s <= used.cpu_s + 1e-9  # each is a difference of two readings


@pytest.mark.parametrize("ends", [False, True], ids=["still runs", "has ended"])
def test_the_cpu_time_of_children_counts_whether_they_run_or_ended(ends):
    sampler = Sampler(CORES, pinned=True)
    first = sampler.read()
    with subprocess.Popen(
        [sys.executable, "-c", USE_A_CORE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        child.stdout.readline()
        if ends:
            child.communicate("\n")

        used = utilisation(first, sampler.read_after(first))
        if not ends:
            child.communicate("\n")

    assert used.loaders_cpu_s == pytest.approx(0.4, abs=0.2)
    assert used.cpu_s < 0.3  # not the child's


def test_the_bytes_of_the_interface_are_read_if_it_is_named():
    sampler = Sampler(CORES, pinned=True, interface="lo")
    first = sampler.read()

    network = utilisation(first, sampler.read_after(first)).network

    assert network.interface == "lo"
    assert min(network.sent, network.received) >= 0


def test_ports_for_rdma_are_read_only_where_asked(monkeypatch):
    monkeypatch.setattr(sample, "read_rdma", lambda: pytest.fail("read"))

    assert Sampler(CORES, pinned=True).read().rdma is None


class GpuOverTime:
    """A GPU that gives these readings in order, and records its calls."""

    def __init__(self, monkeypatch, *, processes=(1, 1), errors=(0, 0)):
        self._processes, self._errors = iter(processes), iter(errors)
        self.asked = []
        self.periods = []
        monkeypatch.setattr(sample, "count_processes", self.processes)
        monkeypatch.setattr(sample, "read_counters", self.counters)
        monkeypatch.setattr(sample, "read_use", self.use)

    def processes(self, uuid):
        self.asked.append(("processes", uuid))
        return next(self._processes)

    def counters(self, uuid):
        self.asked.append(("counters", uuid))
        errors = next(self._errors)
        return GpuCounters(ecc_uncorrected=errors, traffic=GpuTraffic(nvlink_sent=100 * errors))

    def use(self, uuid, since_us, until_us):
        self.asked.append(("use", uuid))
        self.periods.append((since_us, until_us))
        return GpuUse(busy=0.9)


def around_steps():
    """Return the samples of a rank with a GPU, around steps that take no time."""
    sampler = Sampler(CORES, pinned=False, gpu="GPU-7")
    first = sampler.read()
    return first, sampler.read_after(first)


def test_only_counters_of_the_gpu_are_read_between_warm_up_and_timed_steps(monkeypatch):
    """An idle GPU runs faster afterwards, so slow readings must not be between the two."""
    gpu = GpuOverTime(monkeypatch)

    around_steps()

    order = ["processes", "counters", "counters", "use", "processes"]
    assert gpu.asked == [(name, "GPU-7") for name in order]


def test_the_counters_of_the_gpu_are_those_just_before_and_just_after_the_steps(monkeypatch):
    GpuOverTime(monkeypatch, errors=(1, 3))

    first, last = around_steps()

    assert conditions(first, last, pinned=False).gpu_errors
    assert utilisation(first, last).gpu == GpuUse(busy=0.9, traffic=GpuTraffic(nvlink_sent=200))


@pytest.mark.parametrize("processes", [(2, 1), (1, 2)])
def test_processes_on_the_gpu_are_read_before_the_warm_up_and_after_the_steps(
    monkeypatch, processes
):
    GpuOverTime(monkeypatch, processes=processes)

    assert conditions(*around_steps(), pinned=False).gpu_shared


def test_the_use_of_the_gpu_is_read_for_the_time_between_the_samples(monkeypatch):
    gpu = GpuOverTime(monkeypatch)
    earliest_us = time.time_ns() // 1000
    close = 100_000  # a busy machine may take long between two clocks

    first, last = around_steps()

    ((since_us, until_us),) = gpu.periods
    assert earliest_us - close <= since_us <= until_us <= time.time_ns() // 1000 + close
    assert until_us - since_us == pytest.approx((last.used_at_s - first.used_at_s) * 1e6, abs=2)


def test_what_a_sample_takes_is_outside_the_period(monkeypatch):
    """The CPU time of the rank is read last before the steps, and first after them."""
    read, own = processes.read_core_times, sample._own
    noted: list[float] = []
    cores_were_read = -1.0
    monkeypatch.setattr(sample, "read_core_times", lambda: noted.append(cores_were_read) or read())
    monkeypatch.setattr(sample, "_own", lambda: noted.append(own()["used_at_s"]) or own())
    sampler = Sampler([0], pinned=False)

    before = sampler.read()
    begin = [*noted]
    noted.clear()
    after = sampler.read_after(before)

    assert begin[0] == cores_were_read
    assert noted[0] <= after.used_at_s < noted[-1]
