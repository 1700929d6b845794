"""The conditions of a rank, its cores and its GPU between two samples."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddp_perf.core.gpu import GpuLoad
from ddp_perf.core.launch import RankConditions
from ddp_perf.system.gpu.nvml_activity import GpuCounters
from ddp_perf.system.host.control_group import CpuUse
from ddp_perf.system.host.processes import CoreTimes, FamilyCpu
from ddp_perf.telemetry.conditions import conditions
from ddp_perf.telemetry.sample import Sample
from tests.strategies import samples

JOB, ABOVE = Path("/sys/fs/cgroup/job"), Path("/sys/fs/cgroup")


def groups(job, above=None):
    """Return the uses of control groups, each given by its used and its throttled seconds."""
    given = {JOB: job, ABOVE: above}
    return {group: CpuUse(used=use[0], throttled=use[1]) for group, use in given.items() if use}


BEGIN = Sample(
    at_s=100.0,
    used_at_s=100.0,
    cpu_s=0,
    system_s=0,
    cores={0: CoreTimes(total=93, idle=50, interrupts=1, stolen=2)},
    family_cpu=FamilyCpu(on_cores=10.0, total=20.0),
    waits_s={77: 1.0},
    heat_events=5,
    clock_ratio=1.2,
    group_uses=groups((50.0, 5.0)),
    memory_stall_s=3.0,
)


def more_cpu(family, seconds):
    return FamilyCpu(on_cores=family.on_cores + seconds, total=family.total + seconds)


def after_a_second(*, busy=0.0, interrupts=0.0, stolen=0.0, own=0.0, waits=None, **changes):
    """Return the sample one second after BEGIN; programs used core 0 for ``busy`` seconds."""
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


def found_after(**after):
    return conditions(BEGIN, after_a_second(**after), pinned=True)


def test_an_undisturbed_rank_has_no_disturbance():
    quiet = found_after(busy=0.9, own=0.9, waits={77: 1.0})

    assert quiet == RankConditions(
        stolen=0, foreign=0, slow_clock=0, overheated=False, quota=0, own_quota=0, memory=0
    )


def test_throttling_before_the_first_reading_is_not_counted():
    """The first reading contains the throttling during the start of the ranks."""
    denied = found_after(group_uses=groups((51.5, 5.5)), memory_stall_s=3.2)

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
    found = found_after(own=own_s, group_uses=groups((52.0, 7.0)))

    assert (found.quota, found.own_quota) == (pytest.approx(others), pytest.approx(own))


@pytest.mark.parametrize(
    ("job", "above", "others", "own"),
    [
        pytest.param((1, 0), (1, 1), 0, 0.5, id="the quota of the group above"),
        pytest.param((2, 0), (4, 4), 0.5, 0, id="a neighbour in the group above"),
        pytest.param((2, 2), (9, 0), 0, 0.5, id="a neighbour without effect on any quota"),
        pytest.param((0, 0), (0, 0), 0, 0, id="idle groups"),
    ],
)
def test_a_quota_of_each_group_is_compared_with_what_that_group_used(job, above, others, own):
    """Ranks that use all of their own group may have a neighbour in the group above."""
    before, after = BEGIN, after_a_second(own=job[0], group_uses=groups(job, above))
    before = msgspec.structs.replace(before, group_uses=groups((0, 0), (0, 0)))

    found = conditions(before, after, pinned=True)

    assert (found.quota, found.own_quota) == (pytest.approx(others), pytest.approx(own))


def test_all_ranks_count_for_a_quota_not_only_those_on_the_own_cores():
    family = FamilyCpu(on_cores=11.0, total=22.0)

    found = conditions(
        BEGIN, after_a_second(family_cpu=family, group_uses=groups((52.0, 7.0))), pinned=True
    )

    assert (found.quota, found.own_quota) == (0, pytest.approx(0.5))


@pytest.mark.parametrize(
    "lacking",
    [{"family_cpu": None}, {"at_s": BEGIN.at_s + 0.04}],
    ids=["no children", "a moment"],
)
def test_a_quota_counts_in_full_if_nobody_knows_who_used_it(lacking):
    found = found_after(own=2.0, group_uses=groups((52.0, 7.0)), **lacking)

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
    found = found_after(memory_stall_s=3.2, memory_filled=filled)

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
    after = found_after(busy=0.4 + used, own=0.4, waits={77: 1.0 + waited})

    assert after.foreign == pytest.approx(foreign)


def test_contention_adds_the_waits_of_all_threads_and_of_new_ones():
    after = found_after(busy=1.0, own=0.1, waits={77: 1.1, 78: 0.3})

    assert after.foreign == pytest.approx(0.4)


def test_contention_does_not_include_own_work_that_is_counted_as_interrupts():
    after = found_after(busy=0.7, interrupts=0.2, own=0.9, waits={77: 1.5})

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
@pytest.mark.parametrize(
    "held_back", [groups((51.0, 6.5)), groups((50.5, 5.0), (1.0, 1.5))], ids=["own", "above"]
)
def test_contention_does_not_include_what_others_use_while_a_quota_holds_the_rank_back(
    idle, foreign, held_back
):
    """The rank used 0.2 s of its core, and a quota held it back for 0.3 s.

    That is 1.5 s for each second that the group used.
    """
    begin = msgspec.structs.replace(BEGIN, group_uses=groups((50.0, 5.0), (0.0, 0.0)))
    after = after_a_second(busy=1 - idle, own=0.2, waits={77: 1.8 - idle}, group_uses=held_back)

    found = conditions(begin, after, pinned=True)

    assert found.foreign == pytest.approx(foreign)


def test_contention_does_not_include_steal_time():
    after = found_after(busy=0.6, stolen=0.4, own=0.6, waits={77: 1.5})

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
    before = Sample(
        at_s=0,
        used_at_s=0,
        cpu_s=0,
        system_s=0,
        cores=dict.fromkeys(range(cores), start),
        family_cpu=FamilyCpu(on_cores=0, total=0),
        waits_s={77: 0.0},
    )
    after = Sample(
        at_s=1,
        used_at_s=1,
        cpu_s=0,
        system_s=0,
        cores={core: used if core < busy else idle for core in range(cores)},
        family_cpu=FamilyCpu(on_cores=own, total=own),
        waits_s={77: waited},
    )
    return conditions(before, after, pinned=False)


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
    assert found_after(busy=0.1, own=0.1, stolen=0.05).stolen == pytest.approx(0.05)


def test_steal_time_is_a_share_of_the_cores_in_use():
    assert machine(8, busy=3, own=3, waited=0, stolen=0.2).stolen == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("before", "after", "slow"),
    [(1.0, 0.7, 0.0), (0.7, 0.75, 0.25), (1.3, 1.3, 0.0)],
    ids=["slow at one moment", "slow at both", "turbo"],
)
def test_a_clock_is_slow_only_if_it_is_slow_at_both_moments(before, after, slow):
    begin = msgspec.structs.replace(BEGIN, clock_ratio=before)

    found = conditions(begin, after_a_second(clock_ratio=after), pinned=True)

    assert found.slow_clock == pytest.approx(slow)


@pytest.mark.parametrize(("count", "overheated"), [(5, False), (6, True)])
def test_overheating_is_an_increase_of_heat_events(count, overheated):
    assert found_after(heat_events=count).overheated is overheated


@pytest.mark.parametrize(
    ("lacking", "unknown"),
    [
        ({"cores": {}}, {"stolen", "foreign"}),
        ({"cores": BEGIN.cores}, {"stolen", "foreign"}),
        ({"waits_s": {}}, {"foreign"}),
        ({"family_cpu": None}, {"foreign", "own_quota"}),
        ({"heat_events": None}, {"overheated"}),
        ({"clock_ratio": None}, {"slow_clock"}),
        ({"group_uses": {}}, {"quota", "own_quota"}),
        ({"memory_stall_s": None}, {"memory"}),
    ],
    ids=[
        "no cores",
        "cores that stand still",
        "no schedstat",
        "no children",
        "no heat",
        "no clock",
        "no control group",
        "no pressure",
    ],
)
def test_figures_that_the_kernel_does_not_report_are_unknown(lacking, unknown):
    found = msgspec.structs.asdict(found_after(busy=1.0, **lacking))

    always = {name for name in found if name.startswith("gpu_")} | {"own_memory"}
    assert {name for name, share in found.items() if share is None} == unknown | always


@pytest.mark.parametrize(
    ("lacking", "unknown"),
    [
        ({"cores": {}}, {"stolen", "foreign"}),
        ({"family_cpu": None}, {"foreign", "own_quota"}),
        ({"group_uses": {}}, {"quota", "own_quota"}),
        ({"memory_stall_s": None}, {"memory"}),
    ],
)
def test_a_figure_is_unknown_if_only_the_first_sample_lacks_a_counter(lacking, unknown):
    begin = msgspec.structs.replace(BEGIN, **lacking)

    found = conditions(begin, after_a_second(busy=1.0), pinned=True)

    assert unknown <= {name for name, one in msgspec.structs.asdict(found).items() if one is None}


@given(samples(), samples(), st.booleans())
def test_shares_are_within_0_and_1_for_any_counters(before, after, pinned):
    found = conditions(before, after, pinned=pinned)

    for share in (found.stolen, found.foreign, found.slow_clock, found.gpu_heat):
        assert share is None or 0 <= share <= 1


@given(samples(), samples(), st.booleans())
def test_more_work_of_the_rank_never_increases_contention(before, after, pinned):
    busier = msgspec.structs.replace(after, family_cpu=more_cpu(after.family_cpu, 1))

    less = conditions(before, busier, pinned=pinned).foreign
    more = conditions(before, after, pinned=pinned).foreign

    assert (less is None) == (more is None)
    assert less is None or less <= more


def test_a_moment_has_no_shares_from_ticks():
    """Four ticks of another process in 40 ms would be all of the time."""
    found = found_after(at_s=BEGIN.at_s + 0.04, busy=0.04, waits={77: 1.04})

    assert (found.foreign, found.stolen) == (None, None)


GPU = GpuCounters(heat_s=5.0, ecc_uncorrected=1)
IDLE = GpuLoad(throttle=())


def of_gpu(*, before=GPU, after=GPU, processes=(1, 1), load=IDLE):
    """Return the conditions of a rank whose GPU is read so, one second apart."""
    begin, end = (
        msgspec.structs.replace(sample, gpu=counters, gpu_processes=count)
        for sample, counters, count in zip(
            (BEGIN, after_a_second()), (before, after), processes, strict=True
        )
    )
    return conditions(begin, end, pinned=False, load=load)


def test_a_rank_alone_on_a_cool_gpu_has_no_disturbance():
    found = of_gpu()

    assert (found.gpu_heat, found.gpu_slowed) == (0, False)
    assert (found.gpu_shared, found.gpu_errors) == (False, False)


def test_heat_of_a_gpu_is_a_share_of_the_time():
    assert of_gpu(after=GpuCounters(heat_s=5.25)).gpu_heat == pytest.approx(0.25)


@pytest.mark.parametrize("reason", ["hardware slowdown", "heat (hardware)", "power brake"])
def test_a_gpu_is_slowed_if_hardware_reduces_its_clocks_in_the_last_steps(reason):
    assert of_gpu(load=GpuLoad(throttle=("power cap", reason))).gpu_slowed is True


@pytest.mark.parametrize(
    "reason", ["power cap", "application clocks", "sync boost", "heat (software)"]
)
def test_a_gpu_is_not_slowed_by_limits_that_somebody_set(reason):
    assert of_gpu(load=GpuLoad(throttle=(reason,))).gpu_slowed is False


@pytest.mark.parametrize(
    ("processes", "shared"),
    [((1, 2), True), ((2, 1), True), ((1, 1), False), ((0, 0), None), ((0, 1), False)],
    ids=["after", "before", "alone", "a container hides all", "one is hidden"],
)
def test_a_gpu_is_shared_if_another_process_is_listed_at_either_end(processes, shared):
    assert of_gpu(processes=processes).gpu_shared is shared


def test_a_memory_error_of_the_gpu_is_reported():
    assert of_gpu(after=GpuCounters(ecc_uncorrected=2)).gpu_errors


def test_figures_that_a_gpu_does_not_report_are_unknown_as_on_the_cpu_tier():
    silent = of_gpu(before=GpuCounters(), processes=(None, None), load=GpuLoad())
    for found in (silent, found_after()):
        assert (found.gpu_heat, found.gpu_slowed) == (None, None)
        assert (found.gpu_shared, found.gpu_errors) == (None, None)
