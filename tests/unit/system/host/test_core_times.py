"""Core times from /proc/stat of kernels and containers."""

from __future__ import annotations

import os

import pytest

from ddp_perf.system.host.processes import (
    TICKS_PER_S,
    CoreTimes,
    read_core_times,
)

STAT = """\
cpu  5367 0 2077 106132 146 0 24 39 0 0
cpu0 430 20 620 55000 21 3 5 13 0 0
cpu12 4937 0 1453 50361 124 0 18 26 7 0
intr 103661 0 0 0
ctxt 1990473
"""


@pytest.fixture
def times(tmp_path):
    """``times(text)``: the times of a machine whose /proc/stat is this text."""

    def read(text):
        (tmp_path / "proc").mkdir()
        (tmp_path / "proc/stat").write_text(text)
        return read_core_times(tmp_path)

    return read


def test_the_times_of_each_core_are_in_seconds_by_its_number(times):
    cores = times(STAT)

    assert cores.keys() == {0, 12}
    assert cores[0] == CoreTimes(
        total=(430 + 20 + 620 + 55000 + 21 + 3 + 5 + 13) / TICKS_PER_S,
        idle=(55000 + 21) / TICKS_PER_S,
        interrupts=(3 + 5) / TICKS_PER_S,
        stolen=13 / TICKS_PER_S,
    )
    # A guest's time is in "user" already.
    assert cores[12].total == (4937 + 1453 + 50361 + 124 + 18 + 26) / TICKS_PER_S


@pytest.mark.parametrize("text", ["", "cpu  1 2 3 4\ncpu0 1 2 3 4\n"], ids=["empty", "old kernel"])
def test_lines_without_all_fields_give_no_times(text, times):
    assert times(text) == {}


def test_a_machine_without_proc_stat_has_no_times(tmp_path):
    assert read_core_times(tmp_path) == {}


def test_the_times_since_a_reading_are_differences_of_each_counter():
    before = CoreTimes(total=20.0, interrupts=0.5, idle=10.0, stolen=0.25)
    after = CoreTimes(total=22.0, interrupts=0.75, idle=10.25, stolen=1.25)

    assert after.since(before) == CoreTimes(total=2.0, interrupts=0.25, idle=0.25, stolen=1.0)


def test_this_machine_has_times_of_its_cores():
    assert os.sched_getaffinity(0) <= read_core_times().keys()
