"""What the control group lost between two readings of a launch."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddp_perf.core.conditions import LaunchConditions
from ddp_perf.system.control_group import CpuUse
from ddp_perf.system.launch_watch import LaunchReading, LaunchWatch, launch_conditions

OWN, ABOVE = Path("/sys/fs/cgroup/job"), Path("/sys/fs/cgroup")


def reading(at_s, memory_stall_s=None, **uses):
    groups = {"own": OWN, "above": ABOVE}
    cpu_uses = {
        groups[name]: CpuUse(used=used, throttled=throttled)
        for name, (used, throttled) in uses.items()
    }
    return LaunchReading(at_s=at_s, cpu_uses=cpu_uses, memory_stall_s=memory_stall_s)


def test_a_quota_takes_a_share_of_what_was_wanted_however_many_cores_that_is():
    conditions = launch_conditions(reading(10, own=(50, 5)), reading(11, own=(56, 7)))

    assert conditions.quota == pytest.approx(2 / 8)


def test_of_the_own_group_and_those_above_the_worst_counts():
    conditions = launch_conditions(
        reading(10, own=(0, 0), above=(0, 0)), reading(11, own=(1, 0), above=(1, 1))
    )

    assert conditions.quota == pytest.approx(0.5)


def test_a_group_that_did_nothing_was_denied_nothing():
    assert launch_conditions(reading(10, own=(5, 1)), reading(11, own=(5, 1))).quota == 0


def test_a_memory_stall_is_a_share_of_the_time():
    assert launch_conditions(reading(10, 3.0), reading(12, 3.5)).memory == pytest.approx(0.25)


def test_what_either_reading_does_not_know_is_not_known():
    known = reading(10, 1.0, own=(1, 0))

    assert launch_conditions(known, reading(11)) == LaunchConditions()
    assert launch_conditions(reading(9), known) == LaunchConditions()


def test_a_watch_of_this_machine_gives_shares_or_nothing():
    conditions = LaunchWatch().conditions()

    for share in (conditions.quota, conditions.memory):
        assert share is None or 0 <= share <= 1
