"""The conditions of a rank and its cores between two readings."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddp_perf.core.gpu import GpuHealth, GpuLoad, GpuProcess
from ddp_perf.core.launch import RankConditions
from ddp_perf.system import rank_watch
from ddp_perf.system.host.control_group import CpuUse, GroupReading
from ddp_perf.system.host.processes import CoreTimes, FamilyCpu
from ddp_perf.system.rank_watch import RankReading, RankWatch, energy_j, rank_conditions
from tests.strategies import rank_readings

JOB = Path("/sys/fs/cgroup/job")


def group(used, throttled, stalled):
    return GroupReading(
        cpu_uses={JOB: CpuUse(used=used, throttled=throttled)}, memory_stall_s=stalled
    )


BEGIN = RankReading(
    at_s=100.0,
    cores={0: CoreTimes(total=93, idle=50, interrupts=1, stolen=2)},
    family_cpu=FamilyCpu(on_cores=10.0, total=20.0),
    waits_s={77: 1.0},
    heat_events=5,
    clock_ratio=1.2,
    group=group(50.0, 5.0, 3.0),
)


def more_cpu(family, seconds):
    return FamilyCpu(on_cores=family.on_cores + seconds, total=family.total + seconds)


def after_a_second(*, busy=0.0, interrupts=0.0, stolen=0.0, own=0.0, waits=None, **changes):
    """Return the reading one second after BEGIN; programs used core 0 for ``busy`` seconds."""
    before = BEGIN.cores[0]
    core = CoreTimes(
        total=before.total + 1,
        idle=before.idle + 1 - busy - interrupts - stolen,
        interrupts=before.interrupts + interrupts,
        stolen=before.stolen + stolen,
    )
    fields = {
        "at_s": 101.0,
        "cores": {0: core},
        "family_cpu": more_cpu(BEGIN.family_cpu, own),
        "waits_s": waits or BEGIN.waits_s,
    }
    return msgspec.structs.replace(BEGIN, **{**fields, **changes})


def conditions(**after):
    return rank_conditions(BEGIN, after_a_second(**after), pinned=True)


def test_an_undisturbed_rank_has_no_disturbance():
    quiet = conditions(busy=0.9, own=0.9, waits={77: 1.0})

    assert quiet == RankConditions(
        stolen=0, foreign=0, slow_clock=0, overheated=False, quota=0, own_quota=0, memory=0
    )


def test_throttling_before_the_first_reading_is_not_counted():
    """The first reading contains the throttling during the start of the ranks."""
    denied = conditions(group=group(51.5, 5.5, 3.2))

    assert (denied.quota, denied.memory) == (pytest.approx(0.25), pytest.approx(0.2))


@pytest.mark.parametrize(
    ("own_s", "others", "own"),
    [
        pytest.param(2.0, 0, 0.5, id="the ranks alone used it up"),
        pytest.param(1.9, 0.05, 0.45, id="a little was others'"),
        pytest.param(1.2, 0.4, 0.1, id="others took much of it"),
        pytest.param(0.2, 0.5, 0, id="others used it up"),
        pytest.param(2.1, 0, 0.5, id="ticks of too much"),
    ],
)
def test_a_quota_is_the_others_doing_as_far_as_others_used_it(own_s, others, own):
    """A quota of two cores is used up, and as much is denied."""
    found = conditions(own=own_s, group=group(52.0, 7.0, 3.0))

    assert (found.quota, found.own_quota) == (pytest.approx(others), pytest.approx(own))


def test_all_ranks_count_for_a_quota_not_only_those_on_the_own_cores():
    family = FamilyCpu(on_cores=11.0, total=22.0)

    found = rank_conditions(
        BEGIN, after_a_second(family_cpu=family, group=group(52.0, 7.0, 3.0)), pinned=True
    )

    assert (found.quota, found.own_quota) == (0, pytest.approx(0.5))


@pytest.mark.parametrize(
    "lacking",
    [{"family_cpu": None}, {"at_s": BEGIN.at_s + 0.04}],
    ids=["no children", "a moment"],
)
def test_a_quota_counts_in_full_if_nobody_knows_who_used_it(lacking):
    found = conditions(own=2.0, group=group(52.0, 7.0, 3.0), **lacking)

    assert (found.quota, found.own_quota) == (pytest.approx(0.5), None)


@pytest.mark.parametrize(
    ("filled", "others", "own"),
    [
        pytest.param(0.95, 0, 0.2, id="the ranks filled it"),
        pytest.param(0.6, 0.2, None, id="others have a large part"),
        pytest.param(None, 0.2, None, id="unknown"),
    ],
)
def test_waits_for_memory_are_the_ranks_own_only_if_they_filled_it(filled, others, own):
    found = conditions(group=group(50.0, 5.0, 3.2), memory_filled=filled)

    assert found.memory == pytest.approx(others)
    assert found.own_memory == (own if own is None else pytest.approx(own))


@pytest.mark.parametrize(
    ("used", "waited", "foreign"),
    [
        pytest.param(0.4, 0.4, 0.4, id="others had the core and the rank waited"),
        pytest.param(0.5, 0.01, 0.01, id="others used what the rank left idle"),
        pytest.param(0.0, 0.5, 0.0, id="the rank's own workers crowd it"),
        pytest.param(0.1, 0.5, 0.1, id="a little of others among its own"),
    ],
)
def test_contention_is_the_smaller_of_waits_and_others_time(used, waited, foreign):
    after = conditions(busy=0.4 + used, own=0.4, waits={77: 1.0 + waited})

    assert after.foreign == pytest.approx(foreign)


def test_contention_adds_the_waits_of_all_threads_and_of_new_ones():
    after = conditions(busy=1.0, own=0.1, waits={77: 1.1, 78: 0.3})

    assert after.foreign == pytest.approx(0.4)


def test_contention_does_not_include_own_work_that_is_counted_as_interrupts():
    after = conditions(busy=0.7, interrupts=0.2, own=0.9, waits={77: 1.5})

    assert after.foreign == 0


@pytest.mark.parametrize(
    ("idle", "foreign"),
    [
        pytest.param(0.0, 0.5, id="others used all of the time that the rank was held back"),
        pytest.param(0.1, 0.5, id="others used a part of it"),
        pytest.param(0.3, 0.5, id="the core was idle for as long"),
        pytest.param(0.4, 0.4, id="the core was idle for longer"),
    ],
)
def test_contention_does_not_include_what_others_use_while_a_quota_holds_the_rank_back(
    idle, foreign
):
    """The rank used 0.2 s of its core, and the quota held it back for 0.3 s."""
    held_back = group(51.0, 6.5, 3.0)  # 1.5 s for each second that the group used

    found = conditions(busy=1 - idle, own=0.2, waits={77: 1.8 - idle}, group=held_back)

    assert found.foreign == pytest.approx(foreign)


def test_contention_does_not_include_steal_time():
    after = conditions(busy=0.6, stolen=0.4, own=0.6, waits={77: 1.5})

    assert (after.stolen, after.foreign) == (pytest.approx(0.4), pytest.approx(0))


def machine(cores, *, busy, own, waited, stolen=0.0):
    """Return the conditions of a rank that may use all cores, of which the first ``busy`` are used.

    ``own``: seconds of the launch's own processes, ``stolen``: of each busy core, of one second.
    """
    idle, used = (
        CoreTimes(total=1, idle=idle, interrupts=0, stolen=stolen if not idle else 0)
        for idle in (1, 0)
    )
    start = CoreTimes(total=0, idle=0, interrupts=0, stolen=0)
    before = RankReading(
        at_s=0,
        cores=dict.fromkeys(range(cores), start),
        family_cpu=FamilyCpu(on_cores=0, total=0),
        waits_s={77: 0.0},
    )
    after = RankReading(
        at_s=1,
        cores={core: used if core < busy else idle for core in range(cores)},
        family_cpu=FamilyCpu(on_cores=own, total=own),
        waits_s={77: waited},
    )
    return rank_conditions(before, after, pinned=False)


@pytest.mark.parametrize(
    ("busy", "own", "foreign"),
    [(8, 1, 0.35), (4, 4, 0.0), (2, 1, 0.05)],
    ids=["crowded by others", "crowded by itself", "room enough"],
)
def test_contention_of_an_unpinned_rank_is_scaled_by_the_others_share_of_all_cores(
    busy, own, foreign
):
    assert machine(8, busy=busy, own=own, waited=0.4).foreign == pytest.approx(foreign)


def test_steal_time_is_a_share_of_the_whole_time_if_the_core_was_mostly_idle():
    assert conditions(busy=0.1, own=0.1, stolen=0.05).stolen == pytest.approx(0.05)


def test_steal_time_is_a_share_of_the_cores_in_use():
    assert machine(8, busy=3, own=3, waited=0, stolen=0.2).stolen == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("before", "after", "slow"),
    [(1.0, 0.7, 0.0), (0.7, 0.75, 0.25), (1.3, 1.3, 0.0)],
    ids=["slow at one moment", "slow at both", "turbo"],
)
def test_a_clock_is_slow_only_if_it_is_slow_at_both_moments(before, after, slow):
    begin = msgspec.structs.replace(BEGIN, clock_ratio=before)

    found = rank_conditions(begin, after_a_second(clock_ratio=after), pinned=True)

    assert found.slow_clock == pytest.approx(slow)


@pytest.mark.parametrize(("count", "overheated"), [(5, False), (6, True)])
def test_overheating_is_an_increase_of_heat_events(count, overheated):
    assert conditions(heat_events=count).overheated is overheated


@pytest.mark.parametrize(
    ("lacking", "unknown"),
    [
        ({"cores": {}}, {"stolen", "foreign"}),
        ({"cores": BEGIN.cores}, {"stolen", "foreign"}),
        ({"waits_s": {}}, {"foreign"}),
        ({"family_cpu": None}, {"foreign", "own_quota"}),
        ({"heat_events": None}, {"overheated"}),
        ({"clock_ratio": None}, {"slow_clock"}),
        ({"group": GroupReading()}, {"quota", "own_quota", "memory"}),
    ],
    ids=[
        "no cores",
        "cores that stand still",
        "no schedstat",
        "no children",
        "no heat",
        "no clock",
        "no control group",
    ],
)
def test_figures_that_the_kernel_does_not_report_are_unknown(lacking, unknown):
    found = msgspec.structs.asdict(conditions(busy=1.0, **lacking))

    always = {name for name in found if name.startswith("gpu_")} | {"own_memory"}
    assert {name for name, share in found.items() if share is None} == unknown | always


@given(rank_readings(), rank_readings(), st.booleans())
def test_shares_are_within_0_and_1_for_any_counters(before, after, pinned):
    found = rank_conditions(before, after, pinned=pinned)

    for share in (found.stolen, found.foreign, found.slow_clock, found.gpu_heat):
        assert share is None or 0 <= share <= 1


@given(rank_readings(), rank_readings(), st.booleans())
def test_more_work_of_the_rank_never_increases_contention(before, after, pinned):
    busier = msgspec.structs.replace(after, family_cpu=more_cpu(after.family_cpu, 1))

    less = rank_conditions(before, busier, pinned=pinned).foreign
    more = rank_conditions(before, after, pinned=pinned).foreign

    assert (less is None) == (more is None)
    assert less is None or less <= more


def test_a_watch_on_this_machine_gives_shares_or_none():
    watch = RankWatch(sorted(os.sched_getaffinity(0)), pinned=True)
    watch.begin()

    for share in msgspec.structs.astuple(watch.watched().conditions):
        assert share is None or 0 <= share <= 1


@pytest.mark.parametrize(
    ("stalls", "own"), [((1.0, 1.5), True), ((1.0, 1.0), False)], ids=["waited", "did not wait"]
)
def test_a_watch_reads_the_filled_memory_only_after_a_wait_for_memory(monkeypatch, stalls, own):
    """Reading it takes long."""
    readings, asked = iter([group(0.0, 0.0, stall_s) for stall_s in stalls]), []

    def family_memory(parent):
        asked.append(parent)
        return 95

    monkeypatch.setattr(rank_watch, "read_group", lambda: next(readings))
    monkeypatch.setattr(rank_watch, "family_memory", family_memory)
    monkeypatch.setattr(rank_watch, "memory_limit", lambda: 100)
    watch = RankWatch(sorted(os.sched_getaffinity(0)), pinned=True)
    watch.begin()
    found = watch.watched().conditions

    assert asked == ([os.getppid()] if own else [])
    assert found.memory == 0
    assert (found.own_memory is not None) is own


def test_an_unpinned_rank_has_no_clock_or_heat_of_its_cores():
    watch = RankWatch(sorted(os.sched_getaffinity(0)), pinned=False)
    watch.begin()
    found = watch.watched().conditions

    assert (found.slow_clock, found.overheated) == (None, None)


def test_a_watch_of_a_moment_has_no_shares_from_ticks():
    """Four ticks of another process in 40 ms would be all of the time."""
    found = conditions(at_s=BEGIN.at_s + 0.04, busy=0.04, waits={77: 1.04})

    assert (found.foreign, found.stolen) == (None, None)


OWN = GpuProcess(pid=1, memory=2**30)
GPU = GpuHealth(uuid="GPU-0", throttle=(), heat_s=5.0, ecc_uncorrected=1, processes=(OWN,))


def of_gpu(before=GPU, **after):
    """Return the conditions of a rank whose GPU is read as ``after`` one second later."""
    begin = msgspec.structs.replace(BEGIN, gpu=before)
    end = after_a_second(gpu=msgspec.structs.replace(before, **after))
    return rank_conditions(begin, end, pinned=False)


def test_a_rank_alone_on_a_cool_gpu_has_no_disturbance():
    found = of_gpu()

    assert (found.gpu_heat, found.gpu_slowed) == (0, False)
    assert (found.gpu_shared, found.gpu_errors) == (False, False)


def test_heat_of_a_gpu_is_a_share_of_the_time():
    assert of_gpu(heat_s=5.25).gpu_heat == pytest.approx(0.25)


@pytest.mark.parametrize("reason", ["hardware slowdown", "heat (hardware)", "power brake"])
def test_a_gpu_is_slowed_if_hardware_reduces_its_clocks_after_the_steps(reason):
    assert of_gpu(throttle=("power cap", reason)).gpu_slowed is True


@pytest.mark.parametrize(
    "reason", ["power cap", "application clocks", "sync boost", "heat (software)"]
)
def test_a_gpu_is_not_slowed_by_limits_that_somebody_set(reason):
    assert of_gpu(throttle=(reason,)).gpu_slowed is False


def test_a_gpu_is_not_slowed_by_clocks_reduced_only_before_the_steps():
    before = msgspec.structs.replace(GPU, throttle=("heat (hardware)",))

    assert of_gpu(before=before, throttle=()).gpu_slowed is False


def test_a_gpu_is_shared_if_another_process_is_listed_at_either_end():
    stranger = GpuProcess(pid=2, memory=None)
    crowded = msgspec.structs.replace(GPU, processes=(OWN, stranger))

    assert of_gpu(processes=(OWN, stranger)).gpu_shared
    assert of_gpu(before=crowded, processes=(OWN,)).gpu_shared


def test_sharing_of_a_gpu_is_unknown_if_a_container_hides_all_processes():
    hidden = msgspec.structs.replace(GPU, processes=())

    assert of_gpu(before=hidden).gpu_shared is None
    assert of_gpu(before=hidden, processes=(OWN,)).gpu_shared is False


def test_a_memory_error_of_the_gpu_is_reported():
    assert of_gpu(ecc_uncorrected=2).gpu_errors


def test_figures_that_a_gpu_does_not_report_are_unknown_as_on_the_cpu_tier():
    for found in (of_gpu(before=GpuHealth(uuid="GPU-0")), conditions()):
        assert (found.gpu_heat, found.gpu_slowed) == (None, None)
        assert (found.gpu_shared, found.gpu_errors) == (None, None)


class GpuOverTime:
    """A GPU that returns the given readings in order, and records its calls."""

    def __init__(self, *readings):
        self._readings = iter(readings)
        self.asked = []

    def health(self, uuid):
        self.asked.append(("all", uuid))
        return msgspec.structs.replace(GPU, **next(self._readings))

    def counters(self, uuid):
        self.asked.append(("counters", uuid))
        return GpuHealth(uuid=uuid, heat_s=5.0, **next(self._readings))


def watched(gpu, load=None):
    """Return the result of a watch of ``gpu`` that begins some time after it was made.

    ``load`` was read while it ran the last steps.
    """
    watch = RankWatch(
        sorted(os.sched_getaffinity(0)),
        pinned=False,
        gpu="GPU-7",
        read_gpu=gpu.health,
        read_gpu_counters=gpu.counters,
    )
    watch.begin()
    return watch.watched(load)


def test_only_counters_of_the_gpu_are_read_between_warm_up_and_timed_steps():
    """An idle GPU runs faster afterwards, so slow readings must not be between the two."""
    gpu = GpuOverTime({}, {}, {})

    watched(gpu)

    assert gpu.asked == [("all", "GPU-7"), ("counters", "GPU-7"), ("all", "GPU-7")]


def test_counters_are_compared_with_those_just_before_the_timed_steps():
    """An error in the warm-up belongs to no timed step."""
    early, late = ([{"ecc_uncorrected": n} for n in counts] for counts in ((1, 2, 2), (1, 1, 2)))

    assert not watched(GpuOverTime(*early)).conditions.gpu_errors
    assert watched(GpuOverTime(*late)).conditions.gpu_errors


def test_processes_on_the_gpu_are_read_before_the_warm_up_and_not_again():
    crowd = (OWN, GpuProcess(pid=2, memory=None))

    assert watched(GpuOverTime({"processes": crowd}, {}, {})).conditions.gpu_shared
    assert watched(GpuOverTime({}, {}, {})).conditions.gpu_shared is False


@pytest.mark.parametrize(
    ("load", "slowed"),
    [(GpuLoad(throttle=("power brake",)), True), (GpuLoad(throttle=()), False), (None, None)],
)
def test_a_gpu_is_slowed_if_it_is_while_it_runs_the_last_steps(load, slowed):
    """Idle, as it is when everything else is read, it has its full clock again."""
    idle = {"throttle": ("heat (hardware)",)}

    assert watched(GpuOverTime({}, {}, idle), load).conditions.gpu_slowed is slowed


def energy(*, seconds=10.0, **counter):
    """Return the energy between two readings, with the counter at 100 J and 700 J."""
    counters = {"before": 100.0, "after": 700.0, **counter}
    begin = msgspec.structs.replace(BEGIN, gpu=GpuHealth(uuid="G", energy_j=counters["before"]))
    end = msgspec.structs.replace(
        BEGIN, at_s=BEGIN.at_s + seconds, gpu=GpuHealth(uuid="G", energy_j=counters["after"])
    )
    return energy_j(begin, end)


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
    assert energy_j(BEGIN, msgspec.structs.replace(BEGIN, at_s=BEGIN.at_s + 10)) is None
